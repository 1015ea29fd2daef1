// The order in which the parts of a context end.
#include "emulated/objects/context_end.h"

#include <cstdint>
#include <set>

#include "driver_abi/state/context_storage.h"
#include "emulated/objects/capture.h"
#include "emulated/objects/context.h"
#include "emulated/objects/ownership.h"

namespace gpurun::emulated {

void end_context(Context& context) {
  end_captures_of(context);
  context.synchronize();
  const std::set<std::uint64_t> owned = context.take_owned();
  // Without a lock, because the destructors call back into the driver.
  driver_abi::drop_context_storage(context.as<CUcontext>());
  context.deactivate();
  for (const std::uint64_t handle : owned) handles().drop(handle);
  release_memory_of_context(context.handle());
  context.renew();
}

}  // namespace gpurun::emulated
