// Regions: the fast form of a kernel, which is its code split where threads wait (docs/adr/0025).
#pragma once

#include <cstdint>

#include "base/status.h"

namespace llvm {
class Module;
}

namespace gpurun::emulated {

// `module` holds one optimised kernel as a function kRootSymbol. Its callees are inlined, except
// those named kUpdateFunction. Replaces the function by a constant of that name, a RegionProgram,
// and the functions of the regions. On failure the module is unusable.
//
// kRefused: the kernel must run as threads, and the message says why. kInternal: the result is not
// valid IR, a bug of ours. `slice_lanes`: kSliceLanes or kNarrowSliceLanes (device_abi.h).
Status split_into_regions(llvm::Module& module, unsigned slice_lanes);

// The width of slices for blocks with rows of `row_threads` threads (ntid.x). The rest of a row
// runs lane by lane.
unsigned slice_lanes_for(std::uint32_t row_threads);

}  // namespace gpurun::emulated
