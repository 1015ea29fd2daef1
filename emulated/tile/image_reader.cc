// Functions, their operations, and globals.
#include "emulated/tile/image_reader.h"

#include <utility>

#include "emulated/tile/function_reader.h"

namespace gpurun::emulated::tile {
namespace {

constexpr std::uint8_t kKernelFlag = 2;
constexpr std::uint8_t kHintsFlag = 4;

// Whether PTX accepts it as a name. The translation writes the name unchanged.
bool is_name(std::string_view text) {
  if (text.empty() || text.size() > 1024) return false;
  // The translation's own names begin with a dollar sign.
  if ((text.front() >= '0' && text.front() <= '9') || text.front() == '$') return false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
    if (!letter && (c < '0' || c > '9')) return false;
  }
  return text != "_";
}

bool read_name(const ImageTables& tables, Cursor& from, std::string* name) {
  std::string_view text;
  if (!tables.string_at(from, &text)) return false;
  if (!is_name(text)) return from.fail("an invalid name");
  *name = std::string(text);
  return true;
}

Status read_functions(const ImageTables& tables, ByteView section, Program* program) {
  Cursor from(section, "functions");
  const std::uint64_t count = from.count(1, kFunctionsMax);
  for (std::uint64_t i = 0; i < count; ++i) {
    Function function;
    TypeIndex signature = 0;
    if (!read_name(tables, from, &function.name)) return from.status();
    if (!tables.type_at(from, &signature)) return from.status();
    const std::uint8_t flags = from.byte();
    from.number();  // The source position.
    if ((flags & kKernelFlag) == 0) from.fail("a function that is no kernel");
    if ((flags & kHintsFlag) != 0) skip_attribute(tables, from, 0);
    const ByteView body = from.take(from.number());
    if (!from.ok()) return from.status();
    if (tables.types()[signature].kind != Type::Kind::kFunction) from.fail("no type of a function");
    for (const Function& other : program->functions) {
      if (other.name == function.name) from.fail("two kernels with the name " + function.name);
    }
    if (!from.ok()) return from.status();
    FunctionReader reader(tables, function);
    GPURUN_RETURN_IF_ERROR(reader.read(tables.types()[signature], body));
    program->functions.push_back(std::move(function));
  }
  return from.ok() ? Status() : from.status();
}

Status read_globals(const ImageTables& tables, ByteView section, Program* program) {
  if (section.empty()) return {};
  Cursor from(section, "globals");
  const std::uint64_t count = from.number(kTypesMax);
  from.align(8);
  if (count > from.left() / 4) from.fail("more things than bytes");
  for (std::uint64_t i = 0; i < count && from.ok(); ++i) {
    Global global;
    if (!read_name(tables, from, &global.name)) break;
    if (!tables.tile_type_at(from, &global.type)) break;
    if (!tables.constant_at(from, tables.types()[global.type], &global.value)) break;
    global.alignment = from.number(4096);
    if ((global.alignment & (global.alignment - 1)) != 0) from.fail("no alignment");
    if (tables.minor() >= 3) {
      from.number(1);
      from.number(1);
    }
    program->globals.push_back(std::move(global));
  }
  return from.ok() ? Status() : from.status();
}

}  // namespace

Result<Program> read_program(ByteView image) {
  const auto layout = driver_abi::tile_ir_layout(image);
  if (!layout.ok()) return layout.status();
  ImageTables tables;
  if (const Status read = tables.read(*layout); !read.ok()) return read;
  Program program;
  program.types = tables.types();
  using driver_abi::TileIrSection;
  Status read = read_globals(tables, layout->section(TileIrSection::kGlobals), &program);
  if (!read.ok()) return read;
  read = read_functions(tables, layout->section(TileIrSection::kFunctions), &program);
  if (!read.ok()) return read;
  return program;
}

}  // namespace gpurun::emulated::tile
