// BulkWrites: writes end in their order, so those that were written are the first ones.
#include "server/bulk/bulk_writes.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"

namespace gpurun::server {

using protocol::BulkHeader;
using transport::RemoteMemory;

namespace {

// Between looks at deadlines, and at stop().
constexpr std::chrono::milliseconds kEndsLook{100};
// Between attempts to begin a write.
constexpr std::chrono::milliseconds kBeginNap{1};
constexpr std::size_t kEndsMax = 32;

}  // namespace

BulkWrites::~BulkWrites() {
  if (started_) remote_->withdraw_source();
}

void BulkWrites::stop() { stopping_ = true; }

// With the lock held.
bool BulkWrites::start() {
  if (started_ || unable_) return started_;
  const Status enrolled = remote_->enroll_source(staging_.memory());
  started_ = enrolled.ok();
  unable_ = !started_;
  if (unable_) {
    why_unable_ = enrolled.message();
    GPURUN_LOG(kWarning, "large results are not written over RDMA: %s", enrolled.message().c_str());
  }
  return started_;
}

bool BulkWrites::open(std::uint64_t transfer, const protocol::WrittenDestination& destination) {
  if (remote_ == nullptr || failed_ || !remote_->works()) return false;
  const std::lock_guard lock(mutex_);
  if (!start()) return false;
  return transfers_.try_emplace(transfer, Transfer{destination}).second;
}

void BulkWrites::forget(std::uint64_t transfer) {
  const std::lock_guard lock(mutex_);
  transfers_.erase(transfer);
}

// Begins the parts of the last chunk. False: the device refuses one.
bool BulkWrites::begin_parts(const protocol::WrittenDestination& destination, Chunks* written) {
  const Chunk chunk = writing_.back().chunk;
  for (std::size_t done = 0; done < chunk.bytes.size();) {
    const std::size_t bytes = std::min(remote_->read_bytes_max(), chunk.bytes.size() - done);
    const RemoteMemory::Write write{chunk.bytes.data() + done,
                                    destination.address + chunk.header.offset + done,
                                    destination.key, static_cast<std::uint32_t>(bytes), last_id_};
    const RemoteMemory::Began began = remote_->begin_write(write);
    if (began == RemoteMemory::Began::kFailed || failed_) return false;
    if (began == RemoteMemory::Began::kLater) {
      look(kBeginNap, written);
      if (failed_) return true;
      continue;
    }
    ++writing_.back().parts;
    done += bytes;
  }
  writing_.back().whole = true;
  return true;
}

void BulkWrites::write(const Chunk& chunk, Chunks* written) {
  protocol::WrittenDestination destination;
  {
    const std::lock_guard lock(mutex_);
    destination = transfers_[chunk.header.transfer].destination;
  }
  writing_.push_back({++last_id_, chunk, 0, false, true, Deadline::in(kWriteDeadline)});
  if (!begin_parts(destination, written)) fail(written);
}

// Takes ends until none is there, or until the first after `at_most`.
void BulkWrites::take_ends(std::chrono::milliseconds at_most, Chunks* written) {
  std::array<RemoteMemory::Ended, kEndsMax> ended;
  const std::size_t count = remote_->await_writes(ended, Deadline::in(at_most));
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = std::find_if(writing_.begin(), writing_.end(),
                                 [&](const Writing& each) { return each.id == ended[i].id; });
    if (at == writing_.end()) continue;
    --at->parts;
    at->right = at->right && ended[i].right;
  }
  while (!writing_.empty()) {
    const Writing& first = writing_.front();
    if (first.parts != 0 || !first.whole || !first.right) return;
    const std::lock_guard lock(mutex_);
    transfers_[first.chunk.header.transfer].written += first.chunk.bytes.size();
    written->push_back(first.chunk);
    writing_.pop_front();
  }
}

void BulkWrites::look(std::chrono::milliseconds at_most, Chunks* written) {
  take_ends(at_most, written);
  if (failed_ || writing_.empty()) return;
  const Writing& first = writing_.front();
  if (!first.right || first.deadline.passed() || stopping_ || !remote_->works()) fail(written);
}

// The reports of writes that are under way come soon, or never.
void BulkWrites::fail(Chunks* written) {
  if (failed_.exchange(true)) return;
  remote_->give_up();
  const Deadline deadline = Deadline::in(kEndDeadline);
  const auto waits = [this] {
    return std::any_of(writing_.begin(), writing_.end(),
                       [](const Writing& each) { return each.parts != 0; });
  };
  while (waits() && !deadline.passed()) take_ends(kEndsLook, written);
}

void BulkWrites::await_some(std::chrono::milliseconds at_most, Chunks* written) {
  if (!writing_.empty() && !failed_) look(at_most, written);
}

void BulkWrites::await_all(Chunks* written) {
  while (!writing_.empty() && !failed_) look(kEndsLook, written);
}

BulkWrites::Chunks BulkWrites::take_failed() {
  Chunks left;
  for (const Writing& each : writing_) left.push_back(each.chunk);
  writing_.clear();
  return left;
}

std::optional<BulkHeader> BulkWrites::written_before(const BulkHeader& chunk) {
  const std::lock_guard lock(mutex_);
  const auto found = transfers_.find(chunk.transfer);
  if (found == transfers_.end() || found->second.written == 0) return std::nullopt;
  if (std::exchange(found->second.told, true)) return std::nullopt;
  return BulkHeader{chunk.transfer, found->second.written, chunk.total, 0};
}

std::string BulkWrites::why_refused() const {
  const std::lock_guard lock(mutex_);
  return why_unable_;
}

std::size_t BulkWrites::remembered() const {
  const std::lock_guard lock(mutex_);
  return transfers_.size();
}

}  // namespace gpurun::server
