// The fast form of a kernel: its code split at the places where threads wait (docs/adr/0025).
#pragma once

#include "base/status.h"

namespace llvm {
class Module;
}

namespace gpurun::emulated {

// `module` holds one optimised kernel, as a function kRootSymbol whose callees are inlined but for
// those named kUpdateFunction. Replaces it by a constant of that name, a RegionProgram, and its
// functions. kRefused: the kernel has to run as threads, the message says why; kInternal: what came
// out is not valid IR, a mistake of ours. On failure the module is unusable.
Status split_into_regions(llvm::Module& module);

}  // namespace gpurun::emulated
