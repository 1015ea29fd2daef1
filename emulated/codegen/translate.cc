// Translation of a kernel and its callees, which LLVM then verifies.
#include "emulated/codegen/translate.h"

#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>

#include "emulated/codegen/function_builder.h"
#include "emulated/codegen/positions.h"

namespace gpurun::emulated {

Status translate(const KernelSource& kernel, llvm::Module& module) {
  std::uint32_t ordinal = 0;
  const auto build = [&](const FunctionSource& source) {
    return FunctionBuilder(module, kernel, source, ordinal++).build();
  };
  if (Status status = build(kernel.root); !status.ok()) return status;
  for (const FunctionSource& callee : kernel.callees) {
    if (Status status = build(callee); !status.ok()) return status;
  }
  write_positions(module);
  std::string problem;
  llvm::raw_string_ostream out(problem);
  if (llvm::verifyModule(module, &out)) {
    return Status(Code::kInternal, "invalid code for kernel " +
                                       std::string(kernel.root.function->name) + ": " + out.str());
  }
  return Status();
}

}  // namespace gpurun::emulated
