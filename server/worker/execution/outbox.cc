// Outbox: items wait until they are acknowledged, and one thread at a time sends what is ready.
#include "server/worker/execution/outbox.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "server/worker/stats/statistics_counter.h"

namespace gpurun::server {
namespace {

using protocol::FrameHeader;
using protocol::FrameKind;
using protocol::ReplyHeader;
using protocol::ReplyKind;

// Bytes of one frame, unless its first item is larger.
constexpr std::size_t kFrameTargetBytes = std::size_t{256} << 10;

void append(Bytes& to, ByteView bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

}  // namespace

Outbox::Outbox(transport::Connection& log, std::chrono::milliseconds send_deadline,
               StatisticsCounter* statistics)
    : log_(log), send_deadline_(send_deadline), statistics_(statistics) {}

void Outbox::fail(Status why) {
  failure_ = std::move(why);
  room_.notify_all();
}

Status Outbox::post(ReplyHeader header, ByteView payload) {
  std::unique_lock lock(mutex_);
  return add(lock, header, payload, true);
}

Status Outbox::post_later(ReplyHeader header, ByteView payload) {
  std::unique_lock lock(mutex_);
  return add(lock, header, payload, false);
}

void Outbox::send() {
  std::unique_lock lock(mutex_);
  send_due(lock);
}

Status Outbox::post_when_room(ReplyHeader header, ByteView payload) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [this] { return item_bytes_ < kOutboxRoomBytes || closed_ || !failure_.ok(); });
  return add(lock, header, payload, true);
}

Status Outbox::add(std::unique_lock<std::mutex>& lock, ReplyHeader header, ByteView payload,
                   bool now) {
  if (payload.size() > protocol::kReplyPayloadBytesMax) {
    return Status(Code::kTooLarge, "a reply of " + std::to_string(payload.size()) + " bytes");
  }
  header.bytes = static_cast<std::uint32_t>(protocol::reply_bytes(payload.size()));
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.reserved = 0;
  if (!failure_.ok()) return failure_;
  if (closed_ || goodbye_due_) return {};
  if (item_bytes_ + header.bytes > kOutboxBytesMax) {
    fail(Status(Code::kProtocol, "the client acknowledges no replies"));
    log_.shut_down();
    return failure_;
  }
  header.sequence = ++last_sequence_;
  if (header.kind == ReplyKind::kReply && owed_ > 0) --owed_;
  Bytes bytes;
  bytes.reserve(header.bytes);
  append(bytes, bytes_of(header));
  append(bytes, payload);
  bytes.resize(header.bytes);
  item_bytes_ += bytes.size();
  const bool news = header.kind == ReplyKind::kReply || header.kind == ReplyKind::kEventDone;
  if (news && copied_bytes_ != 0) {
    few_copies_ = copied_bytes_ <= kOutboxCopiesBytesMax;
    copied_bytes_ = 0;
  }
  items_.push_back({std::move(bytes), header.sequence});
  ++unsent_;
  if (now) send_due(lock);
  return failure_;
}

void Outbox::taken(std::uint64_t sequence, std::size_t byte_count) {
  const std::lock_guard lock(mutex_);
  taken_ = std::max(taken_, sequence);
  taken_bytes_ += byte_count;
}

void Outbox::owes(std::size_t replies) {
  const std::lock_guard lock(mutex_);
  owed_ += replies;
}

void Outbox::acknowledge_when_due() {
  std::unique_lock lock(mutex_);
  if (taken_bytes_ < kAcknowledgeBytes) return;
  acknowledge_due_ = true;
  send_due(lock);
}

Status Outbox::acknowledged(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (sequence > last_sequence_ - unsent_) {
    return Status(Code::kProtocol,
                  "reply " + std::to_string(sequence) + " is acknowledged but was never sent");
  }
  acknowledged_ = std::max(acknowledged_, sequence);
  while (items_.size() > unsent_ && items_.front().sequence <= acknowledged_) {
    item_bytes_ -= items_.front().bytes.size();
    items_.pop_front();
  }
  if (item_bytes_ < kOutboxRoomBytes) room_.notify_all();
  return {};
}

void Outbox::heartbeat() {
  std::unique_lock lock(mutex_);
  if (!std::exchange(said_something_, false)) heartbeat_due_ = true;
  send_due(lock);
  said_something_ = false;
}

void Outbox::goodbye(std::string_view reason) {
  std::unique_lock lock(mutex_);
  goodbye_ = reason.substr(0, limits::kHelloBytesMax);
  goodbye_due_ = true;
  send_due(lock);
  // Another thread may be sending, and then it sends this frame too. Each frame has a deadline.
  idle_.wait(lock, [this] { return !sending_; });
}

std::size_t Outbox::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return item_bytes_;
}

bool Outbox::takes_copy(std::size_t byte_count) {
  const std::lock_guard lock(mutex_);
  copied_bytes_ += byte_count;
  return few_copies_ && copied_bytes_ <= kOutboxCopiesBytesMax &&
         item_bytes_ <= kOutboxCopiesKeptBytesMax;
}

Status Outbox::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// Builds the next frame under the lock, with its payload in frame_. Its items count as sent. False:
// nothing is ready to send.
bool Outbox::collect(FrameHeader* frame) {
  frame_.clear();
  if (closed_ || !failure_.ok()) return false;
  *frame = FrameHeader{};
  if (unsent_ != 0) {
    frame->kind = FrameKind::kReplies;
    frame->sequence = last_sequence_ - unsent_ + 1;
    const std::size_t due = unsent_;
    auto item = items_.end() - static_cast<std::ptrdiff_t>(unsent_);
    while (item != items_.end() &&
           (frame_.empty() || frame_.size() + item->bytes.size() <= kFrameTargetBytes)) {
      append(frame_, item->bytes);
      --unsent_;
      ++item;
    }
    if (statistics_ != nullptr) statistics_->count_replies(due - unsent_, frame_.size());
  } else if (goodbye_due_) {
    frame->kind = FrameKind::kGoodbye;
    append(frame_, byte_view(goodbye_.data(), goodbye_.size()));
    closed_ = true;
    room_.notify_all();
  } else if (acknowledge_due_) {
    frame->kind = FrameKind::kAcknowledge;
  } else if (heartbeat_due_) {
    frame->kind = FrameKind::kHeartbeat;
    frame->sequence = owed_ + 1;
  } else {
    return false;
  }
  frame->payload_bytes = static_cast<std::uint32_t>(frame_.size());
  frame->acknowledged = taken_;
  taken_bytes_ = 0;
  acknowledge_due_ = heartbeat_due_ = false;  // Every frame acknowledges and shows life.
  said_something_ = true;
  return true;
}

void Outbox::send_due(std::unique_lock<std::mutex>& lock) {
  if (sending_) return;
  sending_ = true;
  FrameHeader frame;
  while (collect(&frame)) {
    lock.unlock();
    const std::array<ByteView, 2> parts = {bytes_of(frame), ByteView(frame_)};
    const std::size_t part_count = frame_.empty() ? 1 : 2;
    const Status sent =
        log_.send(std::span(parts.data(), part_count), Deadline::in(send_deadline_));
    if (!sent.ok()) log_.shut_down();  // The numbers have advanced, so no later frame would fit.
    lock.lock();
    if (!sent.ok() && failure_.ok()) fail(sent);
  }
  sending_ = false;
  idle_.notify_all();
}

}  // namespace gpurun::server
