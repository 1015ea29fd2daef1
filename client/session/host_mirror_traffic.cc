// HostMirrorTraffic: the records of an exchange.
#include "client/session/host_mirror_traffic.h"

#include <cstring>
#include <vector>

#include "driver_abi/opcodes.h"
#include "protocol/calls/host_mirror.h"

namespace gpurun::client {
namespace {

using protocol::HostMirrorChanges;
using protocol::HostMirrorHead;
using protocol::HostMirrorStep;

CallSite exchange_site() {
  CallSite site;
  site.opcode = driver_abi::opcode::cuMemHostGetDevicePointer_v2;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kImmediate;
  site.work = Work::kNone;
  return site;
}

}  // namespace

bool HostMirrorTraffic::add(std::uint64_t address, std::uint64_t bytes, std::byte* memory,
                            bool noted) {
  const std::lock_guard lock(mutex_);
  if (!mirror_.add(address, bytes, memory, noted)) return false;
  blocks_.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

void HostMirrorTraffic::remove(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  if (mirror_.remove(address)) blocks_.fetch_sub(1, std::memory_order_acq_rel);
}

void HostMirrorTraffic::add_allocation(std::uint64_t address, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  mirror_.add_allocation(address, bytes);
}

void HostMirrorTraffic::remove_allocation(Lane& lane, std::uint64_t address) {
  (void)take(lane);
  const std::lock_guard lock(mutex_);
  mirror_.remove_allocation(address);
}

void HostMirrorTraffic::give(Lane& lane) {
  if (!exists()) return;
  const std::lock_guard lock(mutex_);
  (void)mirror_.send_written(
      [&](ByteView payload) { return calls_.post(lane, exchange_site(), payload) == 0; });
}

bool HostMirrorTraffic::take_part(Lane& lane, HostMirrorStep step,
                                  std::span<const protocol::HostMirrorRange> ranges,
                                  std::uint64_t* from, bool* changed) {
  const HostMirrorHead head{step, 0, *from};
  const ByteView parts[] = {bytes_of(head), byte_view(ranges.data(), ranges.size_bytes())};
  Reply reply;
  if (!calls_.ask(lane, exchange_site(), parts, &reply)) return false;
  HostMirrorChanges changes;
  const bool sound = reply.result == 0 && reply.payload.size() >= sizeof changes;
  if (sound) std::memcpy(&changes, reply.payload.data(), sizeof changes);
  if (!sound || (changes.next != 0 && changes.next <= *from) ||
      !mirror_.take(reply.payload.subspan(sizeof changes))) {
    calls_.die(Status(Code::kProtocol, "malformed changes of host memory"));
    return false;
  }
  *from = changes.next;
  *changed = *changed || reply.payload.size() > sizeof changes;
  return true;
}

bool HostMirrorTraffic::poll(Lane& lane) {
  const std::lock_guard lock(mutex_);
  const std::vector<protocol::HostMirrorRange> ranges = mirror_.polled();
  bool changed = false;
  bool lives = mirror_.send_polled(ranges, [&](ByteView payload) {
    changed = true;
    return calls_.post(lane, exchange_site(), payload) == 0;
  });
  std::uint64_t from = 0;
  if (lives && !ranges.empty()) {
    lives = take_part(lane, HostMirrorStep::kPoll, ranges, &from, &changed);
  }
  if (!lives) ended_.store(true, std::memory_order_release);
  return changed;
}

void HostMirrorTraffic::await_work() {
  while (polls()) {
    const std::uint64_t issued = issued_.load(std::memory_order_acquire);
    if (is_due()) return;
    issued_.wait(issued);
  }
}

void HostMirrorTraffic::end_polls() noexcept {
  ended_.store(true, std::memory_order_release);
  issued_.fetch_add(1, std::memory_order_acq_rel);
  issued_.notify_all();
}

// What was issued is read before the question whether all of it is complete.
bool HostMirrorTraffic::take(Lane& lane) {
  if (!is_due()) return true;
  const std::lock_guard lock(mutex_);
  const std::uint64_t issued = issued_.load(std::memory_order_acquire);
  if (!exists() || issued == taken_.load(std::memory_order_acquire)) return true;
  const bool busy = calls_.device_may_use();
  bool changed = false;
  for (auto ranges = mirror_.allocations_from(0); !ranges.empty();
       ranges = mirror_.allocations_from(ranges.back().address + 1)) {
    std::uint64_t from = 0;
    do {
      if (!take_part(lane, HostMirrorStep::kCollect, ranges, &from, &changed)) return false;
    } while (from != 0);
  }
  if (!busy) taken_.store(issued, std::memory_order_release);
  return true;
}

}  // namespace gpurun::client
