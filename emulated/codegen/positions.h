// Positions: the data that shows at run time which lanes of a warp are converged (device_abi.h,
// CodePosition).
#pragma once

namespace llvm {
class Module;
}

namespace gpurun::emulated {

// Fills in the positions that the calls of active_mask and step_together take
// (FunctionBuilder::position()). Called once, while the blocks of the code are still those of the
// PTX. Functions that neither make nor reach such a call are unchanged.
void write_positions(llvm::Module& module);

}  // namespace gpurun::emulated
