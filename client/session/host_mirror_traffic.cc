// HostMirrorTraffic: the records of an exchange.
#include "client/session/host_mirror_traffic.h"

#include <cstring>
#include <vector>

#include "driver_abi/opcodes.h"
#include "driver_abi/row.h"
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

void HostMirrorTraffic::add_allocation(std::uint64_t address, std::uint64_t bytes, bool in_turn,
                                       std::size_t first, std::size_t last) {
  const std::lock_guard lock(mutex_);
  mirror_.add_allocation(address, bytes, in_turn, first, last);
  if (in_turn && check_ != nullptr) check_->add(address, bytes);
}

void HostMirrorTraffic::remove_allocation(Lane& lane, std::uint64_t address) {
  (void)take(lane);
  const std::lock_guard lock(mutex_);
  if (check_ != nullptr) check_->remove(address);
  mirror_.remove_allocation(address);
}

void HostMirrorTraffic::give(Lane& lane) {
  if (!exists()) return;
  const std::lock_guard lock(mutex_);
  const Access access(*this);
  (void)mirror_.send_written(!calls_.device_may_use(), [&](ByteView payload) {
    return calls_.post(lane, exchange_site(), payload) == 0;
  });
}

bool HostMirrorTraffic::ask(Lane& lane, Question* question) {
  const HostMirrorHead head{question->step, 0, question->from};
  const ByteView parts[] = {bytes_of(head),
                            byte_view(question->ranges.data(), question->ranges.size_bytes())};
  return calls_.ask(lane, exchange_site(), parts, &question->sequence);
}

bool HostMirrorTraffic::answer(Lane& lane, const Question& question, std::uint64_t* next,
                               Bytes* pieces) {
  Reply reply;
  if (!calls_.answer(lane, exchange_site(), question.sequence, &reply)) return false;
  HostMirrorChanges changes;
  const bool sound = reply.result == 0 && reply.payload.size() >= sizeof changes;
  if (sound) std::memcpy(&changes, reply.payload.data(), sizeof changes);
  const std::uint64_t end = question.ranges.back().address + question.ranges.back().bytes;
  if (!sound || (changes.next != 0 && (changes.next <= question.from || changes.next > end))) {
    calls_.die(Status(Code::kProtocol, "malformed changes of host memory"));
    return false;
  }
  *next = changes.next;
  const ByteView rest = reply.payload.subspan(sizeof changes);
  pieces->assign(rest.begin(), rest.end());
  return true;
}

bool HostMirrorTraffic::merge(ByteView pieces) {
  if (mirror_.take(pieces)) return true;
  calls_.die(Status(Code::kProtocol, "malformed changes of host memory"));
  return false;
}

// The worker compares the next part while this thread merges the last one.
bool HostMirrorTraffic::take_ranges(Lane& lane, std::span<const protocol::HostMirrorRange> ranges) {
  Question question{HostMirrorStep::kCollect, ranges};
  Bytes pieces;
  if (!ask(lane, &question)) return false;
  for (;;) {
    std::uint64_t next = 0;
    if (!answer(lane, question, &next, &pieces)) return false;
    question.from = next;
    if (next != 0 && !ask(lane, &question)) return false;
    if (!merge(pieces)) return false;
    if (next == 0) return true;
  }
}

bool HostMirrorTraffic::take_range(Lane& lane, std::uint64_t address, std::uint64_t bytes) {
  if (exists()) count_work();
  const protocol::HostMirrorRange range{address, bytes, 0};
  const std::lock_guard lock(mutex_);
  const Access access(*this);
  return take_ranges(lane, {&range, 1});
}

bool HostMirrorTraffic::take_all(Lane& lane, std::span<const protocol::HostMirrorRange> left_out,
                                 bool idle) {
  for (auto ranges = mirror_.allocations_from(0); !ranges.empty();) {
    const std::uint64_t behind = ranges.back().address + 1;
    std::erase_if(ranges,
                  [&](const auto& range) { return HostMirror::is_among(left_out, range.address); });
    if (!idle) {
      for (protocol::HostMirrorRange& range : ranges) range.in_turn = 0;
    }
    if (!ranges.empty() && !take_ranges(lane, ranges)) return false;
    ranges = mirror_.allocations_from(behind);
  }
  return true;
}

// The worker's flags are merged after all that was written before them.
bool HostMirrorTraffic::poll(Lane& lane) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;  // Another exchange is under way.
  const std::vector<protocol::HostMirrorRange> ranges = mirror_.polled();
  if (ranges.empty()) return false;
  const Access access(*this);
  bool changed = false;
  bool lives = mirror_.send_polled(ranges, [&](ByteView payload) {
    changed = true;
    return calls_.post(lane, exchange_site(), payload) == 0;
  });
  std::uint64_t next = 0;
  Bytes flags;
  Question question{HostMirrorStep::kPoll, ranges};
  lives = lives && ask(lane, &question) && answer(lane, question, &next, &flags);
  if (lives && !flags.empty()) {
    changed = true;
    lives = take_all(lane, ranges, false) && merge(flags);
  }
  if (!lives) ended_.store(true, std::memory_order_release);
  return changed;
}

void HostMirrorTraffic::note_work(const CallSite& site) noexcept {
  if (!exists()) return;
  if (check_ != nullptr) deny_access(site);
  count_work();
}

// Each side first writes its own word and then reads the other's, so one of them sees the other.
void HostMirrorTraffic::count_work() noexcept {
  issued_.fetch_add(1);
  if (!polls_sleep_.load()) return;
  { const std::lock_guard lock(sleeping_); }
  work_came_.notify_all();
}

// The launch has told the kernel's name already.
void HostMirrorTraffic::deny_access(const CallSite& site) {
  const std::lock_guard lock(mutex_);
  if (site.form != protocol::Form::kLaunch) {
    const driver_abi::Row* const row = driver_abi::find_row(site.opcode);
    check_->note_work({site.context, site.stream}, row == nullptr ? "a call" : row->symbol);
  }
  check_->begin_work();
}

void HostMirrorTraffic::await_work() {
  std::unique_lock lock(sleeping_);
  polls_sleep_.store(true);
  work_came_.wait(lock, [this] { return !polls() || is_due(); });
  polls_sleep_.store(false);
}

void HostMirrorTraffic::end_polls() noexcept {
  {
    const std::lock_guard lock(sleeping_);
    ended_.store(true, std::memory_order_release);
  }
  work_came_.notify_all();
}

// What was issued is read before the question whether all of it is complete.
bool HostMirrorTraffic::take(Lane& lane) {
  if (!is_due()) return true;
  const std::lock_guard lock(mutex_);
  const std::uint64_t issued = issued_.load(std::memory_order_acquire);
  if (!exists() || issued == taken_.load(std::memory_order_acquire)) return true;
  const Access access(*this);
  const bool busy = calls_.device_may_use();
  if (!take_all(lane, {}, !busy)) return false;
  if (!busy) taken_.store(issued, std::memory_order_release);
  return true;
}

}  // namespace gpurun::client
