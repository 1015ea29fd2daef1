// Outbox: everything that the worker says on the log channel: replies, errors, acknowledgements,
// life signs, the goodbye. Items are numbered in the order in which they are posted, and kept until
// the client has acknowledged them.
//
// Who posts also sends, unless somebody is sending already, who then sends that too: no thread in
// between, and one frame for what piled up meanwhile. A client that reads nothing for the send
// deadline, or acknowledges nothing while kOutboxBytesMax pile up, loses the connection.
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
#include "protocol/frame.h"
#include "protocol/record.h"
#include "transport/transport.h"

namespace gpurun::server {

class Observer;

// Bytes of replies that were not acknowledged; the session ends beyond.
inline constexpr std::size_t kOutboxBytesMax = std::size_t{64} << 20;
// Whoever can wait does so while more is not acknowledged.
inline constexpr std::size_t kOutboxRoomBytes = kOutboxBytesMax / 4;
// Copies' bytes are not said here while more is not acknowledged, nor where there were more of them
// between two replies or news of events.
inline constexpr std::size_t kOutboxCopiesKeptBytesMax = std::size_t{512} << 10;
inline constexpr std::size_t kOutboxCopiesBytesMax = limits::kItemCopyBytesMax;
// The client learns what was taken at the latest after this many bytes of records.
inline constexpr std::size_t kAcknowledgeBytes = std::size_t{64} << 10;

class Outbox {
 public:
  // Borrows the connection, which outlives it, and who counts, if anybody does. Nobody else sends
  // on it.
  Outbox(transport::Connection& log, std::chrono::milliseconds send_deadline,
         Observer* observer = nullptr);
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // Says one item. Sizes and number are filled in here; `payload` is copied. Over
  // kReplyPayloadBytesMax: kTooLarge, and nothing is said. The outbox's failure otherwise.
  Status post(protocol::ReplyHeader header, ByteView payload);
  // Likewise, but it is sent with the next item, or by send(), which must follow.
  Status post_later(protocol::ReplyHeader header, ByteView payload);
  void send();
  // Likewise, once less than kOutboxRoomBytes are not acknowledged: for items of which there may be
  // many. Waits as long as the session lives; not on the thread that hears acknowledgements.
  Status post_when_room(protocol::ReplyHeader header, ByteView payload);

  // The worker has the records through `sequence`, `byte_count` bytes more than last time. Said
  // with the next frame.
  void taken(std::uint64_t sequence, std::size_t byte_count);
  // The client waits for replies to so many calls of those that are taken() next.
  void owes(std::size_t replies);
  // Says so alone if by now kAcknowledgeBytes were taken of which no frame has told.
  void acknowledge_when_due();

  // The client has taken the items through `sequence`. kProtocol: that was never sent.
  Status acknowledged(std::uint64_t sequence);

  // Says that we live, unless something else was sent since the last call.
  void heartbeat();
  // The last frame: later posts are not sent. `reason` is cut at limits::kHelloBytesMax. Returns
  // when it is sent or cannot be.
  void goodbye(std::string_view reason);

  // Bytes of items that the client has not acknowledged.
  std::size_t kept_bytes() const;
  // So many bytes of a small copy are due: whether they shall be said here (kCopyBytes). A few go
  // well with the news that count on them. Many go quicker where bytes are all there is, and where
  // some of them go here, the others wait for those: so what there was between the last news that
  // had copies before them decides for the first ones.
  bool takes_copy(std::size_t byte_count);

  // Why nothing can be sent any more; ok while it can.
  Status failure() const;

 private:
  struct Item {
    Bytes bytes;
    std::uint64_t sequence;
  };

  Status add(std::unique_lock<std::mutex>& lock, protocol::ReplyHeader header, ByteView payload,
             bool now);
  void fail(Status why);
  // Sends what is due if nobody else does.
  void send_due(std::unique_lock<std::mutex>& lock);
  bool collect(protocol::FrameHeader* frame);

  transport::Connection& log_;
  const std::chrono::milliseconds send_deadline_;
  Observer* const observer_;

  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable idle_;  // Nobody is sending.
  std::deque<Item> items_;        // Retained, then unsent.
  std::size_t unsent_ = 0;        // So many of the last are unsent.
  std::size_t item_bytes_ = 0;
  std::size_t copied_bytes_ = 0;  // Of small copies, since the last reply or news of an event.
  bool few_copies_ = true;        // Before the last such news that had any before them.
  std::uint64_t last_sequence_ = 0;
  std::uint64_t acknowledged_ = 0;  // Of ours, by the client.
  std::uint64_t taken_ = 0;         // Of the client's, by us.
  std::uint64_t owed_ = 0;          // Replies to come. Never fewer than of what is taken_.
  std::size_t taken_bytes_ = 0;     // Since the client was last told.
  bool sending_ = false;
  bool acknowledge_due_ = false;
  bool heartbeat_due_ = false;
  bool goodbye_due_ = false;
  bool said_something_ = false;  // Since the last heartbeat().
  bool closed_ = false;          // The goodbye was said.
  std::string goodbye_;
  Status failure_;
  Bytes frame_;  // Of who is sending: memory that has been used before is quicker.
};

}  // namespace gpurun::server
