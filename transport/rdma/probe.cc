// Probe: the queue pair that a connection has, with both ends in one.
#include "transport/rdma/probe.h"

#include <arpa/inet.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "base/deadline.h"
#include "transport/rdma/queue_pair.h"

namespace gpurun::transport::rdma {
namespace {

constexpr std::chrono::milliseconds kProbeWait{2000};
constexpr std::uint32_t kImmediate = 0x67707572;
constexpr std::uint32_t kBytes = 8;
// Less in one message makes reads slower than messages.
constexpr std::uint32_t kReadBytesMin = std::uint32_t{64} << 10;

Deadline probe_deadline(Deadline all) {
  return Deadline::in(std::min<std::chrono::nanoseconds>(kProbeWait, all.remaining()));
}

// Whether a message arrives with its immediate, in the way that `port.writes` selects.
Result<bool> arrives(const Port& port, Deadline until) {
  Result<std::unique_ptr<QueuePair>> made = QueuePair::make(port, kRingBytesMin, Role::kBoth);
  if (!made.ok()) return made.status();
  QueuePair& pair = **made;
  GPURUN_RETURN_IF_ERROR(pair.connect(pair.offer()));
  if (!pair.bring(pair.memory().out(), kBytes, 0, kImmediate, 1)) return false;
  const Deadline deadline = probe_deadline(until);
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

Result<bool> probe_writes(const Port& port, Deadline deadline) {
  Port tried = port;
  tried.reads = 0;
  for (const bool writes : {true, false}) {
    tried.writes = writes;
    const Result<bool> works = arrives(tried, deadline);
    if (!works.ok()) return works.status();
    if (*works) return writes;
  }
  return Status(Code::kUnavailable, "it brings no message with an immediate to itself");
}

bool probe_reads(const Port& port, Deadline until) {
  if (port.reads == 0 || port.message_bytes_max < kReadBytesMin) return false;
  Result<std::unique_ptr<QueuePair>> made = QueuePair::make(port, kRingBytesMin, Role::kBoth);
  if (!made.ok() || !(*made)->connect((*made)->offer()).ok()) return false;
  QueuePair& pair = **made;
  std::byte* const from = pair.memory().out();
  std::byte* const into = pair.memory().in();
  const Result<RegionKeys> lent = pair.lend(from, pair.memory().ring_bytes());
  if (!lent.ok()) return false;
  std::memset(from, 0x5a, kBytes);
  if (!pair.read(into, pair.memory().in_lkey(), reinterpret_cast<std::uint64_t>(from), lent->remote,
                 kBytes, 1)) {
    return false;
  }
  const Deadline deadline = probe_deadline(until);
  ibv_wc done = {};
  while (pair.poll_requests(&done, 1) == 0) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return done.status == IBV_WC_SUCCESS && done.wr_id == 1 && std::memcmp(from, into, kBytes) == 0;
}

}  // namespace gpurun::transport::rdma
