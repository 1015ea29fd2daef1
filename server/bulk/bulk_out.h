// BulkOut: the bytes that copies bring from the device, from their staging slots to the client, and
// the numbers of completed transfers. A reply with watermark n reaches the program after the
// transfers 1 to n have arrived.
//
// A transfer gets its number when the device has written its last byte, not when it is sent. So
// when a stream is done, a caller that calls Completions::settle() and then reads the watermark has
// the number of every copy of that stream.
//
// A slot is free again when the network has its bytes. What the client has not taken yet is bounded
// by the system's buffers for a connection. A copy also pauses while enough bytes wait to be sent.
// Bytes that are copied far ahead of the connection would leave the processor's cache
// (docs/adr/0026).
//
// Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "protocol/limits.h"
#include "protocol/log/frame.h"
#include "server/bulk/staging.h"

namespace gpurun::server {

// Bytes on their way from the device. Beyond this, copies wait.
inline constexpr std::size_t kStagingOutBytes = std::size_t{64} << 20;

// Bytes that the device has written and no connection has taken. From this many on, copies wait.
inline constexpr std::size_t kBytesAheadMax = std::size_t{2} << 20;
// The least that a chunk counts for. However short it is, it has a slot. So short copies leave most
// slots to others.
inline constexpr std::size_t kBytesAheadOfChunk = kBytesAheadMax / 16;
// Once so few bytes are left, the device is asked for more, several chunks at a time. A thread that
// alternates between copying and sending is faster in longer turns (docs/adr/0026).
inline constexpr std::size_t kBytesAheadMin = std::size_t{512} << 10;
static_assert(kBytesAheadMin >= limits::kBulkChunkBytes, "behind a kernel the first one is enough");
// Chunks that a copy has requested from the device. A copy behind a long kernel leaves the other
// slots to other streams.
inline constexpr std::size_t kChunksAskedMax = 8;

class BulkOut {
 public:
  static constexpr unsigned kWritten = 0;
  // The notices of BulkOut, sent without a lock held.
  struct Listener {
    void* user = nullptr;
    // A copy that waits for a slot may continue.
    void (*room)(void* user) = nullptr;
    // A kChunk, or without bytes a kChunkAbandoned, must be sent. The bytes stay until gone(). Any
    // of the first `lanes` connections may send it. kWritten: BulkWrites writes it.
    void (*say)(void* user, protocol::FrameKind kind, const protocol::BulkHeader& header,
                ByteView bytes, unsigned lanes) = nullptr;
  };
  // `spreads`: the client supports Feature::kSpreadCopies.
  BulkOut(Staging& staging, Listener listener, bool spreads)
      : staging_(staging), listener_(listener), spreads_(spreads) {}
  BulkOut(const BulkOut&) = delete;
  BulkOut& operator=(const BulkOut&) = delete;

  // For the executor.

  // The call `sequence` names `transfer`, which uses the first `lanes` connections, or is kWritten.
  // Returns 0, also for a repetition of the same call. INVALID_VALUE: it belongs to another call.
  int open(std::uint64_t transfer, std::uint64_t sequence, std::uint64_t total, unsigned lanes = 1);
  struct Chunk {
    std::byte* bytes = nullptr;
    std::uint64_t offset = 0;
    std::size_t size = 0;
  };
  // The next part of the transfer, with a slot to copy it to. It has no bytes when no slot is free,
  // enough bytes are on their way (room() or gone() then reports), or nothing is left. copied()
  // follows when the driver has filled the slot or has failed.
  Chunk next(std::uint64_t transfer);
  bool all_given(std::uint64_t transfer) const;
  // A slot for a copy that goes in a reply or came in its record. nullptr as for next(), and when
  // at most `left` slots are free.
  std::byte* take_slot(std::size_t left = 0);
  void give_slot(std::byte* slot);
  // In the order of next().
  void copied(std::uint64_t transfer, const Chunk& chunk, int result);
  // The call `sequence`, for `total` bytes, has ended with `result`. After a failure the client is
  // notified that nothing more comes.
  void end_call(std::uint64_t transfer, std::uint64_t sequence, std::uint64_t total, int result);
  // The state of the transfer: 0 or the CUresult.
  int result(std::uint64_t transfer) const;

  // Whether transfers exist that the driver has got completely and that have no number yet.
  bool numbering_due() const;
  std::uint64_t watermark() const;
  // As watermark(), but each of these transfers has been sent to its queue. An item that enters the
  // same queue next comes after them. Waits for a thread that is just sending one.
  std::uint64_t watermark_said();

  // For the sender of a connection: the network has the `bytes` in `slot`. True: a copy that waits
  // may continue.
  bool gone(std::uint64_t transfer, std::byte* slot, std::size_t bytes);
  // For the receiver of a connection. kProtocol: the bytes were never sent.
  Status receipt(const protocol::BulkHeader& header);

  std::size_t remembered() const;

 private:
  struct Transfer {
    std::uint64_t call = 0;
    std::uint64_t total = 0;
    unsigned lanes = 1;
    bool written = false;
    std::uint64_t given = 0;   // Bytes that ever had a slot.
    std::uint64_t copied = 0;  // Bytes that the driver has finished.
    std::uint64_t said = 0;    // The part of these that goes to the client.
    std::size_t asked = 0;     // Chunks that the device has not reached.
    std::size_t unsent = 0;    // Chunks that no connection has taken.
    int failure = 0;
    bool abandoned = false;  // The client knows of the failure.
    bool closed = false;     // Its call has ended.
  };
  using Transfers = std::map<std::uint64_t, Transfer>;

  std::byte* take_staging();
  bool may_go_on();
  bool may_ask(const Transfer& transfer) const;
  void abandon(std::uint64_t number, Transfer& transfer);
  void forget_when_done(Transfers::iterator at);

  Staging& staging_;
  const Listener listener_;
  const bool spreads_;
  std::mutex saying_;         // Before all others. Chunks are sent in the order of their numbers.
  mutable std::mutex mutex_;  // Guards all below.
  Transfers transfers_;
  std::size_t unnumbered_ = 0;
  std::uint64_t numbered_ = 0;
  std::size_t unsent_ = 0;         // The counted bytes of all transfers.
  std::size_t spread_unsent_ = 0;  // Chunks that several connections may take.
  unsigned more_lanes_ = 0;        // Of the waiting copies, the most connections beyond the first.
  bool starving_ = false;          // A copy waits for a slot, or for chunks to end or leave.
  bool lacks_slots_ = false;       // It lacks a slot, so it need not wait for chunks to leave.
};

}  // namespace gpurun::server
