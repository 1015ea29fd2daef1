// Translation of an image: reads it, then writes variables and kernels.
#include "emulated/tile/translate.h"

#include <algorithm>
#include <utility>

#include "emulated/tile/cursor.h"
#include "emulated/tile/image_reader.h"
#include "emulated/tile/kernel_writer.h"
#include "emulated/tile/plan.h"

namespace gpurun::emulated::tile {
namespace {

// The bytes as in memory. In the image truth values are packed.
std::string variable(const Program& program, const Global& global) {
  const Type& type = program.types[global.type];
  const unsigned size = bytes_of_element(type.element);
  const std::uint64_t alignment = std::max<std::uint64_t>({global.alignment, size, 1});
  std::string text = ".visible .global .align " + std::to_string(alignment) + " .b8 " +
                     global.name + "[" + std::to_string(type.bytes()) + "] = {";
  const bool splat = is_splat(type, global.value);
  for (std::uint64_t i = 0; i < type.bytes(); ++i) {
    unsigned byte = 0;
    if (type.element == Element::kInt1) {
      const auto packed = static_cast<unsigned>(global.value[splat ? 0 : i / 8]);
      byte = packed >> (splat ? 0 : i % 8) & 1;
    } else {
      byte = static_cast<unsigned>(global.value[splat ? i % size : i]);
    }
    text += (i == 0 ? "" : ",") + std::to_string(byte);
  }
  return text + "};\n";
}

Status too_long() {
  return Status::cuda(kInvalidPtx, "Tile IR image: more than " +
                                       std::to_string(kTextBytesMax >> 20) + " MiB of PTX");
}

}  // namespace

Result<std::string> translate(ByteView image, std::uint32_t target) {
  Result<Program> program = read_program(image);
  if (!program.ok()) return program.status();
  std::string text = ".version 8.7\n.target sm_" + std::to_string(target) + "\n.address_size 64\n";
  for (const Global& global : program->globals) {
    if (program->types[global.type].bytes() > kLocalBytesMax) {
      return Status::cuda(kInvalidPtx,
                          "Tile IR image: the variable " + global.name + " has more than 512 KiB");
    }
    text += variable(*program, global);
    if (text.size() > kTextBytesMax) return too_long();
  }
  for (const Function& function : program->functions) {
    Result<Plan> plan = make_plan(*program, function);
    if (!plan.ok()) return plan.status();
    Result<std::string> kernel = KernelWriter(*program, function, *std::move(plan)).write();
    if (!kernel.ok()) return kernel.status();
    text += *kernel;
    if (text.size() > kTextBytesMax) return too_long();
  }
  return text;
}

}  // namespace gpurun::emulated::tile
