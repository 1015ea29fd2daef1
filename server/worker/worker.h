// Worker: the server of one client process over proved connections, until the client leaves or
// dies.
//
// Threads: the caller's (decoder), two for each bulk connection, and one each for held queues,
// heartbeats, later connections and captured output. Helpers start on demand (parking.h). All end
// before run_worker() returns.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "protocol/control/features.h"
#include "server/driver/driver_functions.h"
#include "server/worker/call.h"
#include "transport/transport.h"

namespace gpurun::server {

class BulkLanes;
class Observer;

// The source of bulk connections that join a running session. One thread starts and stops it.
class LateConnections {
 public:
  virtual ~LateConnections() = default;
  // Gives each proved connection to `lanes`, on a thread of its own, until stop().
  virtual Status start(BulkLanes& lanes) = 0;
  // Returns when that thread has ended, which is soon. A second call does no harm.
  virtual void stop() = 0;
};

struct WorkerOptions {
  DriverFunctions driver;
  Handlers handlers;     // About 32 KiB, copied once.
  void* user = nullptr;  // Call::user().
  std::chrono::milliseconds silence_deadline{limits::kSilenceDeadlineS * 1000};
  std::chrono::milliseconds heartbeat{limits::kHeartbeatS * 1000};
  // Operations in one stream that the driver may have in flight. The driver blocks its caller when
  // its own queue is full (about a thousand on recent drivers).
  unsigned launch_depth = 512;
  // How long a call may wait for another lane's call that was answered early (standing.cc) before
  // the client gets a warning. 0: no warning.
  std::chrono::milliseconds standing_after{10'000};
  // The counters for a client that asked for them. run_worker() sets it. nullptr: nothing is
  // counted.
  Observer* observer = nullptr;
  // For tests. The product uses the bounds of protocol/limits.h.
  std::size_t queued_bytes_max = limits::kQueuedBytesMax;
  std::size_t queued_behind_client_bytes_max = limits::kQueuedBehindClientBytesMax;
  // The protocol::Feature bits that the client offers too.
  std::uint64_t features = protocol::our_features(protocol::Sender::kClient).offered;
  // nullptr: the session keeps its first connections.
  LateConnections* late = nullptr;
  // Called with the result that run_worker() will return, before it waits for calls that still
  // block in the driver. Such a wait may take as long as a kernel. A process that serves no other
  // client ends itself here.
  std::function<void(const Status&)> ended;
  // Forwards the output of the device, for which it replaces this process's stdout by a pipe. Only
  // gpurun-worker sets it, because it prints nothing of its own there.
  bool capture_stdout = false;
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
