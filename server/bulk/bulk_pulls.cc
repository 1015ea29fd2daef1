// BulkPulls: one thread that waits for reads, and the next reads behind each that ends.
#include "server/bulk/bulk_pulls.h"

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/thread_name.h"
#include "protocol/limits.h"

namespace gpurun::server {

using protocol::BulkHeader;
using protocol::FrameKind;
using transport::RemoteMemory;

namespace {

// Between looks at the deadlines, while reads are under way.
constexpr std::chrono::milliseconds kLook{100};
// Between attempts to begin a read, while none is under way.
constexpr std::chrono::milliseconds kNap{1};
constexpr std::chrono::milliseconds kNoWait{0};
constexpr std::size_t kEndedMax = 32;

}  // namespace

BulkPulls::BulkPulls(RemoteMemory* remote, Listener listener, DirectMemory* direct)
    : remote_(remote), direct_(direct), listener_(listener), staging_(kStagingBytes) {
  if (direct_ != nullptr) direct_->begin(remote);
}

BulkPulls::~BulkPulls() {
  stop();
  if (enrolled_) remote_->withdraw();
}

void BulkPulls::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    // The thread waits for the ends of reads. Nothing uses their bytes any more.
    if (!readings_.empty()) remote_->give_up();
    work_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  if (direct_ != nullptr) direct_->end();
}

bool BulkPulls::start() {
  if (started_ || unable_ || stopping_) return started_ && !unable_ && !stopping_;
  unable_ = !staging_.ok();
  if (unable_) {
    why_unable_ = "no address space for staging memory";
    return false;
  }
  try {
    thread_ = std::thread([this] { run(); });
    started_ = true;
  } catch (const std::system_error& error) {
    unable_ = true;
    why_unable_ = error.what();
  }
  return started_;
}

// On the thread, without the lock: the kernel locks all pages of the slots, and the executor must
// not wait for that.
void BulkPulls::enroll_slots(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const Status enrolled = remote_->enroll(staging_.memory());
  if (!enrolled.ok()) {
    GPURUN_LOG(kWarning, "large copies are not read over RDMA: %s", enrolled.message().c_str());
  }
  Notices notices;
  lock.lock();
  enrolled_ = enrolled.ok();
  unable_ = !enrolled_;
  why_unable_ = enrolled.message();
  if (unable_) fail_all(notices);
  begin_reads(notices);
  work_.notify_all();
  const bool sends = !stopping_;
  lock.unlock();
  if (sends) send(notices, Thread::kPuller);
  lock.lock();
}

void BulkPulls::begin() {
  std::unique_lock lock(mutex_);
  if (start()) work_.wait(lock, [this] { return enrolled_ || unable_; });
}

bool BulkPulls::open(std::uint64_t number, std::uint64_t sequence,
                     const protocol::PulledSource& source, const std::optional<Target>& into) {
  Notices notices;
  {
    const std::lock_guard lock(mutex_);
    if (!may_open() || !start()) return false;
    const auto [at, fresh] = transfers_.try_emplace(number);
    if (!fresh) return false;
    at->second.call = sequence;
    at->second.source = source;
    if (into.has_value() && direct_ != nullptr) {
      at->second.road = Road::kPreparing;
      at->second.into = *into;
      to_prepare_.push_back(number);
      work_.notify_all();
    }
    begin_reads(notices);
  }
  send(notices, Thread::kCaller);
  return true;
}

void BulkPulls::reached(std::uint64_t number, int result) {
  Notices notices;
  {
    const std::lock_guard lock(mutex_);
    const auto found = transfers_.find(number);
    if (found == transfers_.end()) return;
    found->second.reached = true;
    if (result != 0 && found->second.road != Road::kSlots) {
      found->second.road = Road::kSlots;
      let_go(found->second);
    }
    begin_reads(notices);
  }
  send(notices, Thread::kCaller);
}

bool BulkPulls::wants_more(const Transfer& transfer) const {
  if (transfer.failed || transfer.closed) return false;
  if (transfer.road == Road::kDirect) {
    return transfer.reached && transfer.placed < transfer.source.bytes;
  }
  if (transfer.road != Road::kSlots) return false;
  if (transfer.source.in_turn != 0 && !transfer.reached) return false;
  const bool begun =
      !transfer.slots.empty() && transfer.slots.back().asked < transfer.slots.back().chunk.size;
  return begun || (transfer.placed < transfer.source.bytes &&
                   staging_.free_slots() > (transfer.reached ? 0 : kTurnSlots));
}

// nullptr: no slot is free.
BulkPulls::Slot* BulkPulls::slot_to_read(Transfer& transfer) {
  std::deque<Slot>& slots = transfer.slots;
  if (!slots.empty() && slots.back().asked < slots.back().chunk.size) return &slots.back();
  Slot slot;
  slot.chunk.bytes = staging_.take();
  if (slot.chunk.bytes == nullptr) return nullptr;
  slot.chunk.offset = transfer.placed;
  slot.chunk.size = static_cast<std::size_t>(
      std::min<std::uint64_t>(limits::kBulkChunkBytes, transfer.source.bytes - transfer.placed));
  transfer.placed += slot.chunk.size;
  slots.push_back(slot);
  return &slots.back();
}

// Begins one read into device memory.
RemoteMemory::Began BulkPulls::begin_direct(std::uint64_t number, Transfer& transfer) {
  const std::uint64_t into = transfer.into.address + transfer.placed;
  const DirectMemory::Use use = direct_->begin_use(
      into,
      static_cast<std::size_t>(std::min<std::uint64_t>(
          {kDirectReadBytes, remote_->read_bytes_max(), transfer.source.bytes - transfer.placed})));
  if (use.bytes == 0) {
    // The memory ends under the copy.
    transfer.failed = transfer.placed != 0;
    transfer.road = Road::kSlots;
    let_go(transfer);
    return RemoteMemory::Began::kYes;
  }
  const RemoteMemory::Read read{reinterpret_cast<std::byte*>(into),
                                transfer.source.address + transfer.placed,
                                transfer.source.key,
                                static_cast<std::uint32_t>(use.bytes),
                                last_id_ + 1,
                                use.key};
  const RemoteMemory::Began began = remote_->begin_read(read);
  if (began != RemoteMemory::Began::kYes) {
    direct_->end_use(into);
    return began;
  }
  readings_.emplace(++last_id_,
                    Reading{number, transfer.placed, true, Deadline::in(kReadDeadline)});
  transfer.placed += use.bytes;
  ++transfer.reading;
  return began;
}

// Begins the reads of one slot, or one into device memory.
RemoteMemory::Began BulkPulls::begin_one(std::uint64_t number, Transfer& transfer) {
  if (transfer.road == Road::kDirect) return begin_direct(number, transfer);
  Slot* const slot = slot_to_read(transfer);
  while (slot != nullptr && slot->asked < slot->chunk.size) {
    const std::size_t bytes = std::min(remote_->read_bytes_max(), slot->chunk.size - slot->asked);
    const RemoteMemory::Read read{
        slot->chunk.bytes + slot->asked, transfer.source.address + slot->chunk.offset + slot->asked,
        transfer.source.key, static_cast<std::uint32_t>(bytes), last_id_ + 1};
    const RemoteMemory::Began began = remote_->begin_read(read);
    if (began != RemoteMemory::Began::kYes) return began;
    readings_.emplace(++last_id_,
                      Reading{number, slot->chunk.offset, false, Deadline::in(kReadDeadline)});
    slot->asked += bytes;
    ++slot->reading;
    ++transfer.reading;
  }
  return RemoteMemory::Began::kYes;
}

// The transfer after the one that had the last turn. end(): none can go on.
BulkPulls::Transfers::iterator BulkPulls::next_to_read() {
  auto at = transfers_.upper_bound(last_served_);
  for (std::size_t left = transfers_.size(); left != 0; --left, ++at) {
    if (at == transfers_.end()) at = transfers_.begin();
    if (wants_more(at->second)) return at;
  }
  return transfers_.end();
}

void BulkPulls::begin_reads(Notices& notices) {
  if (stopping_ || !enrolled_) return;
  postponed_ = false;
  for (auto at = next_to_read(); at != transfers_.end() && !postponed_; at = next_to_read()) {
    postponed_ = begin_one(at->first, at->second) != RemoteMemory::Began::kYes;
    last_served_ = at->first;
    if (at->second.failed) settle(at, notices);
  }
  if (!remote_->works()) fail_all(notices);
  if (!readings_.empty() || postponed_) work_.notify_all();
}

// Copies that are read already go on.
void BulkPulls::fail_all(Notices& notices) {
  for (auto at = transfers_.begin(); at != transfers_.end();) {
    const auto each = at++;
    if (each->second.read || std::exchange(each->second.failed, true)) continue;
    settle(each, notices);
  }
}

void BulkPulls::let_go(Transfer& transfer) {
  if (!std::exchange(transfer.holds, false)) return;
  direct_->release(transfer.into.address, transfer.source.bytes);
}

void BulkPulls::drop_slots(Transfer& transfer) {
  for (const Slot& slot : transfer.slots) {
    if (slot.lost) {
      ++lost_slots_;
    } else {
      staging_.give_back(slot.chunk.bytes);
    }
  }
  transfer.slots.clear();
}

// Looks at a transfer that may have changed. It may end.
void BulkPulls::settle(Transfers::iterator at, Notices& notices) {
  Transfer& transfer = at->second;
  if (transfer.reading != 0) return;
  const std::uint64_t total = transfer.source.bytes;
  if (transfer.road == Road::kDirect && transfer.placed == total && !transfer.failed &&
      !transfer.closed) {
    transfer.road = Road::kFlushing;
    to_flush_.push_back(at->first);
    return;
  }
  // The end of the flush comes here again.
  if (transfer.road == Road::kFlushing && !transfer.failed && !transfer.closed) return;
  const bool whole =
      transfer.placed == total &&
      (transfer.slots.empty() || transfer.slots.back().asked == transfer.slots.back().chunk.size);
  if (!transfer.failed && whole && !std::exchange(transfer.read, true)) {
    const std::uint64_t direct = transfer.road == Road::kThere ? total : 0;
    notices.says.emplace_back(FrameKind::kChunkReceipt,
                              BulkHeader{at->first, total, total, direct});
  }
  if (transfer.failed) notices.arrived = true;
  if (!transfer.closed) return;
  let_go(transfer);
  drop_slots(transfer);
  if (!transfer.read) {
    notices.says.emplace_back(FrameKind::kChunkAbandoned, BulkHeader{at->first, 0, total, 0});
  }
  transfers_.erase(at);
}

void BulkPulls::end_read(std::uint64_t id, bool right, Notices& notices) {
  const auto reading = readings_.find(id);
  if (reading == readings_.end()) return;
  const Reading ended = reading->second;
  readings_.erase(reading);
  const auto at = transfers_.find(ended.transfer);  // Remembered while a read of it is under way.
  Transfer& transfer = at->second;
  --transfer.reading;
  if (ended.direct) {
    direct_->end_use(transfer.into.address + ended.offset);
    if (!right) {
      transfer.failed = true;
      remote_->give_up();
    }
    return settle(at, notices);
  }
  const auto slot =
      std::find_if(transfer.slots.begin(), transfer.slots.end(),
                   [&](const Slot& each) { return each.chunk.offset == ended.offset; });
  --slot->reading;
  if (!right) {
    transfer.failed = true;
    remote_->give_up();
  } else if (slot == transfer.slots.begin() && slot->reading == 0) {
    notices.arrived = true;
  }
  settle(at, notices);
}

// A device that does not report a read is of no further use.
void BulkPulls::heed_deadlines(Notices& notices) {
  if (readings_.empty()) return;
  if (!ends_by_.has_value()) {
    const bool late = readings_.begin()->second.deadline.passed();
    if (late) remote_->give_up();
    if (late || !remote_->works()) ends_by_ = Deadline::in(kEndDeadline);
    return;
  }
  if (!ends_by_->passed()) return;
  const bool direct = std::any_of(readings_.begin(), readings_.end(),
                                  [](const auto& each) { return each.second.direct; });
  if (direct) direct_->abandon();
  while (!readings_.empty()) {
    const auto [id, reading] = *readings_.begin();
    for (Slot& slot : transfers_.at(reading.transfer).slots) {
      slot.lost = slot.lost || slot.chunk.offset == reading.offset;
    }
    end_read(id, false, notices);
  }
}

// Gives the next transfer's device memory to the device.
void BulkPulls::prepare_next(std::unique_lock<std::mutex>& lock, Notices& notices) {
  const std::uint64_t number = to_prepare_.front();
  to_prepare_.pop_front();
  auto found = transfers_.find(number);
  if (found == transfers_.end() || found->second.road != Road::kPreparing) return;
  const Target into = found->second.into;
  const std::uint64_t bytes = found->second.source.bytes;
  lock.unlock();
  const bool ready = direct_->prepare(into.context, into.address, bytes);
  lock.lock();
  found = transfers_.find(number);
  if (found == transfers_.end() || found->second.road != Road::kPreparing) {
    if (ready) direct_->release(into.address, bytes);
    return;
  }
  found->second.holds = ready;
  found->second.road = ready ? Road::kDirect : Road::kSlots;
  begin_reads(notices);
}

// Ends the next transfer of which all bytes are in device memory.
void BulkPulls::flush_next(std::unique_lock<std::mutex>& lock, Notices& notices) {
  const std::uint64_t number = to_flush_.front();
  to_flush_.pop_front();
  auto found = transfers_.find(number);
  if (found == transfers_.end() || found->second.road != Road::kFlushing) return;
  void* const context = found->second.into.context;
  lock.unlock();
  const bool visible = direct_->flush(context);
  lock.lock();
  found = transfers_.find(number);
  if (found == transfers_.end() || found->second.road != Road::kFlushing) return;
  Transfer& transfer = found->second;
  transfer.failed = transfer.failed || !visible;
  transfer.road = transfer.failed ? Road::kSlots : Road::kThere;
  if (!transfer.failed) transfer.given = transfer.source.bytes;
  let_go(transfer);
  notices.arrived = true;
  settle(found, notices);
}

void BulkPulls::run() {
  name_this_thread("gpurun-pull");
  std::array<RemoteMemory::Ended, kEndedMax> ended;
  std::unique_lock lock(mutex_);
  enroll_slots(lock);
  for (;;) {
    const auto has_errand = [this] { return !to_prepare_.empty() || !to_flush_.empty(); };
    work_.wait(lock, [this, &has_errand] {
      return stopping_ || postponed_ || !readings_.empty() || has_errand();
    });
    if (stopping_ && readings_.empty()) return;
    // Without a read under way, only messages fill the queue, and nothing reports when there is
    // room.
    if (readings_.empty()) {
      work_.wait_for(lock, kNap, [this, &has_errand] { return stopping_ || has_errand(); });
    }
    Notices notices;
    while (!to_prepare_.empty() && !stopping_) prepare_next(lock, notices);
    std::size_t count = 0;
    if (!readings_.empty()) {
      lock.unlock();
      count = remote_->await_reads(ended, Deadline::in(kLook));
      lock.lock();
    }
    // All that have ended, so that none of them counts as late.
    while (count != 0) {
      for (std::size_t i = 0; i < count; ++i) end_read(ended[i].id, ended[i].right, notices);
      count = count < kEndedMax ? 0 : remote_->await_reads(ended, Deadline::in(kNoWait));
    }
    heed_deadlines(notices);
    begin_reads(notices);
    while (!to_flush_.empty() && !stopping_) flush_next(lock, notices);
    const bool sends = !stopping_;
    lock.unlock();
    if (sends) send(notices, Thread::kPuller);
    lock.lock();
  }
}

void BulkPulls::send(const Notices& notices, Thread from) const {
  for (const auto& [kind, header] : notices.says) listener_.say(listener_.user, kind, header);
  if (!notices.arrived) return;
  (from == Thread::kPuller ? listener_.time : listener_.changed)(listener_.user);
}

std::optional<BulkPulls::Chunk> BulkPulls::next(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  if (found == transfers_.end()) return std::nullopt;
  Transfer& transfer = found->second;
  if (transfer.failed || transfer.slots.empty()) return std::nullopt;
  const Slot& slot = transfer.slots.front();
  if (slot.reading != 0 || slot.asked != slot.chunk.size) return std::nullopt;
  const Chunk chunk = slot.chunk;
  transfer.slots.pop_front();
  transfer.given += chunk.size;
  return chunk;
}

const std::byte* BulkPulls::at_hand(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  if (found == transfers_.end() || found->second.failed) return nullptr;
  const std::deque<Slot>& slots = found->second.slots;
  if (slots.empty() || slots.front().reading != 0 ||
      slots.front().asked != slots.front().chunk.size) {
    return nullptr;
  }
  return slots.front().chunk.bytes;
}

bool BulkPulls::all_given(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  return found != transfers_.end() && found->second.given == found->second.source.bytes;
}

bool BulkPulls::has_failed(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(number);
  if (found == transfers_.end() || !found->second.failed || found->second.reading != 0) {
    return false;
  }
  let_go(found->second);
  drop_slots(found->second);
  transfers_.erase(found);
  return true;
}

void BulkPulls::end_call(std::uint64_t number, std::uint64_t sequence) {
  Notices notices;
  {
    const std::lock_guard lock(mutex_);
    const auto found = transfers_.find(number);
    if (found == transfers_.end() || found->second.call != sequence) return;
    found->second.closed = true;
    settle(found, notices);
    begin_reads(notices);
  }
  send(notices, Thread::kCaller);
}

void BulkPulls::retired(std::uint64_t /*transfer*/, const Chunk& chunk) {
  Notices notices;
  {
    const std::lock_guard lock(mutex_);
    staging_.give_back(chunk.bytes);
    begin_reads(notices);
  }
  send(notices, Thread::kCaller);
}

std::string BulkPulls::why_refused() const {
  const std::lock_guard lock(mutex_);
  return why_unable_;
}

std::size_t BulkPulls::remembered() const {
  const std::lock_guard lock(mutex_);
  return transfers_.size();
}

std::size_t BulkPulls::lost_slots() const {
  const std::lock_guard lock(mutex_);
  return lost_slots_;
}

}  // namespace gpurun::server
