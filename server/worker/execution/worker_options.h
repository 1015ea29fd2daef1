// WorkerOptions: what a worker's execution of calls depends on. The worker's start sets it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/brief_spin.h"
#include "base/status.h"
#include "protocol/control/features.h"
#include "protocol/limits.h"
#include "server/driver/driver_functions.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

class DirectMemory;
class ExtraBulkSource;
class HostMemory;
class StatisticsCounter;
struct WorkerChannels;

struct WorkerOptions {
  DriverFunctions driver;
  Handlers handlers;     // About 32 KiB, copied once.
  void* user = nullptr;  // Call::user().
  std::chrono::milliseconds silence_deadline{limits::kSilenceDeadlineS * 1000};
  std::chrono::milliseconds heartbeat{limits::kHeartbeatS * 1000};
  // Operations in one stream that the driver may have in flight. The driver blocks its caller when
  // its own queue is full (about a thousand on recent drivers).
  unsigned launch_depth = 512;
  // How long a call may wait for another lane's call that was answered early (stall_warning.cc)
  // before the client gets a warning. 0: no warning.
  std::chrono::milliseconds stall_warning_after{10'000};
  // How long the thread that decodes, or that hands a wait to a helper, polls before it sleeps or
  // does so (docs/adr/0029). 0 to kSpinUsMax microseconds.
  std::chrono::microseconds spin = BriefSpin::kSpan;
  static constexpr unsigned kSpinUsMax = 1000;
  // The counters for a client that asked for them. run_worker() sets it. nullptr: nothing is
  // counted.
  StatisticsCounter* statistics = nullptr;
  // For tests. The product uses the bounds of protocol/limits.h.
  std::size_t queued_bytes_max = limits::kQueuedBytesMax;
  std::size_t queued_behind_client_bytes_max = limits::kQueuedBehindClientBytesMax;
  // The protocol::Feature bits that the client offers too.
  std::uint64_t features = protocol::features_of_sources(protocol::Sender::kClient).offered;
  // The client's host memory that this process maps. nullptr: none.
  const HostMemory* host_memory = nullptr;
  // The device memory that copies over RDMA may be read into. nullptr: none.
  DirectMemory* direct = nullptr;
  // nullptr: the session keeps its first connections.
  ExtraBulkSource* late = nullptr;
  // Called with each sign of life and at the session's end, by one thread at a time. Must not
  // block. Returns whether the next call is to come within kLookSoon.
  std::function<bool(const WorkerChannels&)> look_at_channels;
  // Called with the result that run_worker() will return, before it waits for calls that still
  // block in the driver. Such a wait may take as long as a kernel. A process that serves no other
  // client ends itself here.
  std::function<void(const Status&)> ended;
  // Forwards the output of the device, for which it replaces this process's stdout by a pipe. Only
  // gpurun-worker sets it, because it prints nothing of its own there.
  bool capture_stdout = false;
};

}  // namespace gpurun::server
