// Positions: what tells at run time which lanes of a warp are converged (device_abi.h,
// CodePosition).
#pragma once

namespace llvm {
class Module;
}

namespace gpurun::emulated {

// Fills in the positions that the calls of active_mask and step_together ask for
// (FunctionBuilder::position()). Once, on code whose blocks are still those of the PTX. Functions
// that neither make such a call nor reach one stay as they are.
void write_positions(llvm::Module& module);

}  // namespace gpurun::emulated
