// Context end: what ends together with a context.
#pragma once

namespace gpurun::emulated {

class Context;

// Ends all work and frees what the context owns. It runs the destructors of what libraries
// attached to the context (driver_abi/state/context_storage.h). A primary context can be activated
// again afterwards.
void end_context(Context& context);

}  // namespace gpurun::emulated
