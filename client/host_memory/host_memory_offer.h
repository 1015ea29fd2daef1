// HostMemoryOffer: how a running session gives its worker the memory file of the host arena
// (docs/adr/0040).
#pragma once

#include "base/status.h"
#include "transport/transport.h"

namespace gpurun::client {

class HostMemoryOffer {
 public:
  virtual ~HostMemoryOffer() = default;
  // Returns once the worker has the file, which it then maps blocks of. Fails within bounds, and
  // at once when `keeper` no longer wants it. A failure leaves the session as it was.
  virtual Status offer(int file, transport::DescriptorKeeper& keeper) = 0;
};

}  // namespace gpurun::client
