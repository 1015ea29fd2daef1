// Worker: serves one client process over proved connections until it goes or dies.
//
// Threads: the caller's (decoder), one for held queues, one for life signs, two for each bulk
// connection, one for those that come later, and helpers on demand (parking.h). All end before
// run_worker() returns.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "protocol/features.h"
#include "server/driver/driver_functions.h"
#include "server/worker/call.h"
#include "transport/transport.h"

namespace gpurun::server {

class BulkLanes;
class Observer;

// Where bulk connections that join a running session come from. One thread starts and stops it.
class LateConnections {
 public:
  virtual ~LateConnections() = default;
  // Gives each one that has been proved to `lanes`, from a thread of its own, until stop().
  virtual Status start(BulkLanes& lanes) = 0;
  // Returns when that thread has ended, which is soon. Twice does no harm.
  virtual void stop() = 0;
};

struct WorkerOptions {
  DriverFunctions driver;
  Handlers handlers;     // About 32 KiB; copied once.
  void* user = nullptr;  // Call::user().
  std::chrono::milliseconds silence_deadline{limits::kSilenceDeadlineS * 1000};
  std::chrono::milliseconds heartbeat{limits::kHeartbeatS * 1000};
  // Operations in one stream that the driver may have in flight (it blocks the caller when its own
  // queue, about a thousand on recent drivers, is full).
  unsigned launch_depth = 512;
  // For so long may a call stand behind another lane's copy that was answered early (standing.cc)
  // before the client is told. 0: for ever.
  std::chrono::milliseconds standing_after{10'000};
  // Counts, for a client that asked for it; run_worker() sets it. nullptr: nothing is counted.
  Observer* observer = nullptr;
  // For tests; the product uses the bounds of protocol/limits.h.
  std::size_t queued_bytes_max = limits::kQueuedBytesMax;
  std::size_t queued_behind_client_bytes_max = limits::kQueuedBehindClientBytesMax;
  // protocol::Feature bits that the client offers as well.
  std::uint64_t features = protocol::our_features(protocol::Sender::kClient).offered;
  // nullptr: the session keeps the connections that it begins with.
  LateConnections* late = nullptr;
  // Called with what run_worker() will return, before it waits for calls that still block in the
  // driver, which may take as long as a kernel. A process that serves nobody else ends itself here.
  std::function<void(const Status&)> ended;
  // Forward what the device prints: replaces this process's stdout by a pipe. Only
  // gpurun-worker, which has nothing of its own to say there, sets it.
  bool capture_stdout = false;
};

struct WorkerChannels {
  std::unique_ptr<transport::Connection> log;
  std::vector<std::unique_ptr<transport::Connection>> bulk;  // At least one.
};

// Returns ok when the client said goodbye; kPeerGone when it died; kProtocol when it broke the
// contract (it is told why in a goodbye frame). What the client made in the driver is left to the
// end of the process.
Status run_worker(const WorkerOptions& options, WorkerChannels channels);

}  // namespace gpurun::server
