// The fast form of a kernel: its code split at the places where threads wait (docs/adr/0025).
#pragma once

#include <cstdint>

#include "base/status.h"

namespace llvm {
class Module;
}

namespace gpurun::emulated {

// `module` holds one optimised kernel, as a function kRootSymbol whose callees are inlined but for
// those named kUpdateFunction. Replaces it by a constant of that name, a RegionProgram, and its
// functions. kRefused: the kernel has to run as threads, the message says why; kInternal: what came
// out is not valid IR, a mistake of ours. On failure the module is unusable.
// `slice_lanes`: kSliceLanes or kNarrowSliceLanes (device_abi.h).
Status split_into_regions(llvm::Module& module, unsigned slice_lanes);

// How wide slices shall be for blocks with rows of so many threads (ntid.x): what is left of a row
// runs lane by lane.
unsigned slice_lanes_for(std::uint32_t row_threads);

}  // namespace gpurun::emulated
