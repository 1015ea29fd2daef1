// emulated_ptx_survey: lists the kernels of PTX files that the emulated device would refuse, and
// the instructions that cause it. A tool for extending the translator, and not a test.
//
// usage: emulated_ptx_survey [--compile | --quick] FILE.ptx...
//   Prints one line for each refused kernel, then the reasons by number of kernels, then every
//   instruction that is not in the translator's table by number of functions. With --compile,
//   kernels are also compiled, each in turn. With --quick they get quick code. Exits with 1 when a
//   kernel was refused.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "emulated/codegen/variant_table.h"
#include "emulated/engine/engine.h"
#include "emulated/jit/compiler.h"
#include "emulated/module/module.h"
#include "emulated/ptx/index.h"
#include "tests/unit/emulated/module/host_memory.h"

namespace gpurun::emulated {
namespace {

struct Totals {
  int files = 0;
  int kernels = 0;
  int refused = 0;
  std::map<std::string, int> reasons;
  std::map<std::string, int> unknown;
};

// "f.ptx: kernel k (in function g), PTX line 7: add.s9: unknown instruction" without the place.
std::string reason_of(const std::string& message) {
  const std::size_t line = message.rfind("PTX line ");
  if (line == std::string::npos) return message;
  const std::size_t colon = message.find(": ", line);
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

void refuse(const Status& status, Totals& totals) {
  ++totals.refused;
  ++totals.reasons[reason_of(status.message())];
  std::printf("%s\n", status.to_string().c_str());
}

void list_unknown(const std::string& text, Totals& totals) {
  const auto index = ptx::index_module(text);
  if (!index.ok()) return;
  for (const ptx::FunctionRange& range : index->functions) {
    const auto function = ptx::parse_function(range);
    if (!function.ok()) continue;
    std::set<std::string> names;
    for (const ptx::Statement& statement : function->body) {
      if (statement.label != ptx::kNoIndex) continue;
      const std::string name = canonical_name(statement.instruction);
      if (find_variant(name) == nullptr) names.insert(name);
    }
    for (const std::string& name : names) ++totals.unknown[name];
  }
}

void survey(const char* path, bool compile, Compiler& compiler, Totals& totals) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  text = text.substr(0, text.find('\0'));
  ++totals.files;
  list_unknown(text, totals);
  HostMemory memory;
  auto module = Module::load({text}, path, compiler, memory);
  if (!module.ok()) return refuse(module.status(), totals);
  for (const std::string& name : (*module)->kernel_names()) {
    ++totals.kernels;
    if (auto kernel = (*module)->kernel(name); !kernel.ok()) {
      refuse(kernel.status(), totals);
    } else if (compile) {
      if (auto code = (*module)->compile(name); !code.ok()) refuse(code.status(), totals);
    }
  }
}

int run(int argc, char** argv) {
  CompilerOptions options;
  options.good_up_to_instructions = ~std::uint32_t{0};
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  options.quick_above_instructions = quick ? 0 : ~std::uint32_t{0};
  auto compiler = Compiler::create(runtime_functions(), options);
  if (!compiler.ok()) {
    std::fprintf(stderr, "%s\n", compiler.status().to_string().c_str());
    return 2;
  }
  bool compile = false;
  Totals totals;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--compile") == 0 || std::strcmp(argv[i], "--quick") == 0) {
      compile = true;
    } else {
      survey(argv[i], compile, **compiler, totals);
    }
  }
  std::printf("\n%d files, %d kernels, %d refused\n", totals.files, totals.kernels, totals.refused);
  for (const auto& [reason, count] : totals.reasons)
    std::printf("%6d  %s\n", count, reason.c_str());
  std::printf("\ninstructions not in the table\n");
  for (const auto& [name, count] : totals.unknown) std::printf("%6d  %s\n", count, name.c_str());
  return totals.refused == 0 ? 0 : 1;
}

}  // namespace
}  // namespace gpurun::emulated

int main(int argc, char** argv) { return gpurun::emulated::run(argc, argv); }
