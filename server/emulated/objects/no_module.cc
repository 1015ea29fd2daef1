// In a build without server/emulated/module: every PTX is refused, with the reason.
#include "server/emulated/jit/compiler.h"
#include "server/emulated/module/module.h"

namespace gpurun::emulated {

class CompilerBackend {};

Compiler::Compiler(std::unique_ptr<CompilerBackend> backend) : backend_(std::move(backend)) {}
Compiler::~Compiler() = default;

Result<std::unique_ptr<Compiler>> Compiler::create(const RuntimeFunctions&,
                                                   const CompilerOptions&) {
  return std::unique_ptr<Compiler>(new Compiler(nullptr));
}

Result<std::unique_ptr<Module>> Module::load(std::vector<std::string>, std::string, Compiler&,
                                             GlobalMemory&) {
  return Status(Code::kUnavailable, "this build of the emulated device translates no PTX");
}

}  // namespace gpurun::emulated
