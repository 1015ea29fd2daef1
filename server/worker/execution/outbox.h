// Outbox: everything that the worker sends on the log channel: replies, errors, acknowledgements,
// heartbeats, the goodbye. Items are numbered in the order of posting and kept until the client has
// acknowledged them.
//
// The posting thread sends. If another thread is already sending, that thread drains the queue. So
// no thread switch lies in between, and one frame takes all that has collected meanwhile. A client
// loses its connection if it reads nothing for the send deadline, or acknowledges nothing while
// kOutboxBytesMax collect.
//
// Any thread may call everything.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "protocol/log/frame.h"
#include "protocol/log/record.h"
#include "transport/transport.h"

namespace gpurun::server {

class StatisticsCounter;

// Bytes of replies without an acknowledgement. Beyond this the session ends.
inline constexpr std::size_t kOutboxBytesMax = std::size_t{64} << 20;
// Callers that can wait do so while more than this is not acknowledged.
inline constexpr std::size_t kOutboxRoomBytes = kOutboxBytesMax / 4;
// The bytes of a copy do not go here while more than this is not acknowledged. They also do not go
// here if there were more copied bytes than this between two replies or event notices.
inline constexpr std::size_t kOutboxCopiesKeptBytesMax = std::size_t{512} << 10;
inline constexpr std::size_t kOutboxCopiesBytesMax = limits::kItemCopyBytesMax;
// The client learns what the worker has taken after at most this many bytes of records.
inline constexpr std::size_t kAcknowledgeBytes = std::size_t{64} << 10;

class Outbox {
 public:
  // Borrows the connection, which outlives it, and the statistics, if there are any. No other code
  // sends on the connection.
  Outbox(transport::Connection& log, std::chrono::milliseconds send_deadline,
         StatisticsCounter* statistics = nullptr);
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // Posts one item. It fills in sizes and number, and copies `payload`. A payload over
  // kReplyPayloadBytesMax returns kTooLarge and sends nothing. Otherwise returns the outbox's
  // failure.
  Status post(protocol::ReplyHeader header, ByteView payload);
  // As post(), but the item is sent with the next item, or by send(), which must follow.
  Status post_later(protocol::ReplyHeader header, ByteView payload);
  void send();
  // As post(), once less than kOutboxRoomBytes are not acknowledged. For kinds of items that may be
  // many. Waits as long as the session lives. Not on the thread that receives acknowledgements.
  Status post_when_room(protocol::ReplyHeader header, ByteView payload);

  // The worker has taken the records through `sequence`, `byte_count` bytes more than last time.
  // The next frame carries this.
  void taken(std::uint64_t sequence, std::size_t byte_count);
  // The client waits for this many replies to calls of the next taken().
  void owes(std::size_t replies);
  // Sends an acknowledgement alone if kAcknowledgeBytes were taken that no frame has acknowledged.
  void acknowledge_when_due();

  // The client has taken the items through `sequence`. kProtocol: that number was never sent.
  Status acknowledged(std::uint64_t sequence);

  // Sends a heartbeat, unless something else was sent since the last call.
  void heartbeat();
  // Sends the last frame. Later posts are not sent. `reason` is cut at limits::kHelloBytesMax.
  // Returns when the frame is sent or cannot be sent.
  void goodbye(std::string_view reason);

  // Bytes of items that the client has not acknowledged.
  std::size_t kept_bytes() const;
  // Whether the bytes of a small copy are to be sent here (kCopyBytes). A few bytes go well with
  // the notices that depend on them. Many bytes go faster as chunks, and if some go here, the
  // others wait for those. So the bytes before the last notice that had copies before it decide
  // about the first bytes.
  bool takes_copy(std::size_t byte_count);

  // Why nothing can be sent any more. ok while sending works.
  Status failure() const;

 private:
  struct Item {
    Bytes bytes;
    std::uint64_t sequence;
  };

  Status add(std::unique_lock<std::mutex>& lock, protocol::ReplyHeader header, ByteView payload,
             bool now);
  void fail(Status why);
  // Sends what is ready if no other thread sends.
  void send_due(std::unique_lock<std::mutex>& lock);
  bool collect(protocol::FrameHeader* frame);

  transport::Connection& log_;
  const std::chrono::milliseconds send_deadline_;
  StatisticsCounter* const statistics_;

  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable idle_;  // No thread is sending.
  std::deque<Item> items_;        // Kept for acknowledgement, then unsent.
  std::size_t unsent_ = 0;        // The number of unsent items, at the end.
  std::size_t item_bytes_ = 0;
  std::size_t copied_bytes_ = 0;  // Of small copies, since the last reply or event notice.
  bool few_copies_ = true;        // Before the last such notice that had any.
  std::uint64_t last_sequence_ = 0;
  std::uint64_t acknowledged_ = 0;  // The items that the client has acknowledged.
  std::uint64_t taken_ = 0;         // The records of the client that the worker has taken.
  std::uint64_t owed_ = 0;          // Replies to come. Never fewer than for the records in taken_.
  std::size_t taken_bytes_ = 0;     // Since the last acknowledgement to the client.
  bool sending_ = false;
  bool acknowledge_due_ = false;
  bool heartbeat_due_ = false;
  bool goodbye_due_ = false;
  bool said_something_ = false;  // Since the last heartbeat().
  bool closed_ = false;          // The goodbye was sent.
  std::string goodbye_;
  Status failure_;
  Bytes frame_;  // For the sending thread. Memory that has been used before is faster.
};

}  // namespace gpurun::server
