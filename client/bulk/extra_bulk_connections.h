// ExtraBulkConnections: where a running session gets further bulk connections from. The session
// measures whether they are faster (docs/adr/0035-as-many-connections-as-help.md).
#pragma once

#include <memory>

#include "base/result.h"
#include "transport/transport.h"

namespace gpurun::client {

// The source of further bulk connections for a running session. One thread at a time.
class ExtraBulkConnections {
 public:
  struct Joined {
    std::unique_ptr<transport::Connection> connection;
    unsigned cores = 0;  // The worker's cores. 0: unknown.
  };
  virtual ~ExtraBulkConnections() = default;
  // Opens a connection that the worker reads from now on. Fails within bounds, and at once when
  // `keeper` no longer wants it. A failure leaves the session as it was.
  virtual Result<Joined> open(transport::DescriptorKeeper& keeper) = 0;
};

}  // namespace gpurun::client
