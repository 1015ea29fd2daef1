// Probe: the queue pair that a connection has, with both ends in one.
#include "transport/rdma/probe.h"

#include <arpa/inet.h>

#include <chrono>
#include <memory>
#include <thread>

#include "base/deadline.h"
#include "transport/rdma/queue_pair.h"

namespace gpurun::transport::rdma {
namespace {

constexpr std::chrono::milliseconds kProbeWait{2000};
constexpr std::uint32_t kImmediate = 0x67707572;
constexpr std::uint32_t kBytes = 8;

// Whether a message arrives with its immediate, in the way that `port.writes` selects.
Result<bool> arrives(const Port& port) {
  Result<std::unique_ptr<QueuePair>> made = QueuePair::make(port, kRingBytesMin, 0);
  if (!made.ok()) return made.status();
  QueuePair& pair = **made;
  GPURUN_RETURN_IF_ERROR(pair.connect(pair.offer()));
  if (!pair.bring(pair.memory().out(), kBytes, 0, kImmediate, 1)) return false;
  const Deadline deadline = Deadline::in(kProbeWait);
  while (!deadline.passed()) {
    ibv_wc come = {};
    const int count = pair.poll_receives(&come, 1);
    if (count < 0) return false;
    ibv_wc done = {};
    if (pair.poll_requests(&done, 1) > 0 && done.status != IBV_WC_SUCCESS) return false;
    if (count != 0) {
      return come.status == IBV_WC_SUCCESS && (come.wc_flags & IBV_WC_WITH_IMM) != 0 &&
             ntohl(come.imm_data) == kImmediate;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return false;
}

}  // namespace

Result<bool> probe_writes(const Port& port) {
  Port tried = port;
  for (const bool writes : {true, false}) {
    tried.writes = writes;
    const Result<bool> works = arrives(tried);
    if (!works.ok()) return works.status();
    if (*works) return writes;
  }
  return Status(Code::kUnavailable, "it brings no message with an immediate to itself");
}

}  // namespace gpurun::transport::rdma
