// Worker: the server of one client process over proved connections, until the client leaves or
// dies.
//
// Threads: the caller's (decoder), two for each bulk connection, and one each for held queues,
// heartbeats, later connections and captured output. Helpers start on demand (thread_pool.h). All
// end before run_worker() returns.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "server/worker/execution/worker_options.h"
#include "transport/transport.h"

namespace gpurun::server {

class BulkLanes;

// The source of bulk connections that join a running session. One thread starts and stops it.
class ExtraBulkSource {
 public:
  virtual ~ExtraBulkSource() = default;
  // Gives each proved connection to `lanes`, on a thread of its own, until stop().
  virtual Status start(BulkLanes& lanes) = 0;
  // Returns when that thread has ended, which is soon. A second call does no harm.
  virtual void stop() = 0;
};

struct WorkerChannels {
  std::unique_ptr<transport::Connection> log;
  std::vector<std::unique_ptr<transport::Connection>> bulk;  // At least one.
};

// Returns ok when the client sent its goodbye, kPeerGone when it died, and kProtocol when it broke
// the contract. A goodbye frame then carries the reason. Objects that the client made in the driver
// stay until the process ends.
Status run_worker(const WorkerOptions& options, WorkerChannels channels);

}  // namespace gpurun::server
