// Translator from a parsed kernel to LLVM IR.
#pragma once

#include "base/status.h"
#include "emulated/codegen/function_source.h"

namespace llvm {
class Module;
}

namespace gpurun::emulated {

// Adds the kernel as kRootSymbol, and its callees, to an empty module. kRefused: an instruction
// cannot be translated, and the message names function and line. kInternal: the result is not valid
// IR, a bug of ours. On failure the module is unusable.
Status translate(const KernelSource& kernel, llvm::Module& module);

}  // namespace gpurun::emulated
