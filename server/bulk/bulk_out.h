// BulkOut: the bytes that copies bring from the device, from their staging slots to the client, and
// the numbers of completed transfers: a reply that carries watermark n is delivered to the program
// after the transfers 1 to n have arrived.
//
// A transfer gets its number when the device has written its last byte, not when it is sent: so
// whoever knows that a stream is done, settles (Completions::settle()) and then asks for the
// watermark, has the number of every copy of that stream.
//
// A slot is free again when its bytes are with the network: what the client has not taken yet is
// bounded by what the system buffers for a connection. And a copy goes no further while enough
// waits to be sent: what is copied far ahead of the connection has left the processor's cache by
// then (docs/adr/0026).
//
// Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "protocol/frame.h"
#include "protocol/limits.h"
#include "server/bulk/staging.h"

namespace gpurun::server {

// Bytes on their way from the device; copies wait beyond.
inline constexpr std::size_t kStagingOutBytes = std::size_t{64} << 20;

// Bytes that the device has written and that no connection has taken; copies wait once it is so
// many.
inline constexpr std::size_t kBytesAheadMax = std::size_t{2} << 20;
// What a chunk counts at least, for it has a slot however short it is: these leave most to others.
inline constexpr std::size_t kBytesAheadOfChunk = kBytesAheadMax / 16;
// More are asked for when so few are left, several chunks at a time: a thread that copies and sends
// by turns is quicker in longer turns (docs/adr/0026).
inline constexpr std::size_t kBytesAheadMin = std::size_t{512} << 10;
static_assert(kBytesAheadMin >= limits::kBulkChunkBytes, "behind a kernel the first one is enough");
// Chunks that a copy has asked the device for; what stands behind a long kernel leaves the other
// slots to other streams.
inline constexpr std::size_t kChunksAskedMax = 8;

class BulkOut {
 public:
  // What BulkOut tells, without a lock held.
  struct Listener {
    void* user = nullptr;
    // A copy that waits for a slot may go on.
    void (*room)(void* user) = nullptr;
    // A kChunk, or with no bytes a kChunkAbandoned, is due. The bytes stay until gone().
    // May go over the first `lanes` connections.
    void (*say)(void* user, protocol::FrameKind kind, const protocol::BulkHeader& header,
                ByteView bytes, unsigned lanes) = nullptr;
  };
  // `spreads`: the client knows of Feature::kSpreadCopies.
  BulkOut(Staging& staging, Listener listener, bool spreads)
      : staging_(staging), listener_(listener), spreads_(spreads) {}
  BulkOut(const BulkOut&) = delete;
  BulkOut& operator=(const BulkOut&) = delete;

  // The executor.

  // The call `sequence` names `transfer`, which goes over the first `lanes` connections. 0, also
  // when it said so before; INVALID_VALUE: another call's.
  int open(std::uint64_t transfer, std::uint64_t sequence, std::uint64_t total, unsigned lanes = 1);
  struct Chunk {
    std::byte* bytes = nullptr;
    std::uint64_t offset = 0;
    std::size_t size = 0;
  };
  // The next part of it, with a slot to copy it to; no bytes when there is no slot, or enough is
  // on its way (room(), or gone(), will say), or nothing is left. Followed by copied() when the
  // driver has filled the slot or failed to.
  Chunk next(std::uint64_t transfer);
  bool all_given(std::uint64_t transfer) const;
  // A slot for a copy that goes in a reply, or that came in its record; nullptr as above, and when
  // no more than `left` would be left to others.
  std::byte* take_slot(std::size_t left = 0);
  void give_slot(std::byte* slot);
  // In the order of next().
  void copied(std::uint64_t transfer, const Chunk& chunk, int result);
  // The call `sequence`, which asked for `total` bytes, has ended with `result`; after a failure
  // the client is told that nothing more comes.
  void end_call(std::uint64_t transfer, std::uint64_t sequence, std::uint64_t total, int result);
  // How it stands: 0 or the CUresult.
  int result(std::uint64_t transfer) const;

  // Transfers that have all been given to the driver and have no number yet.
  bool numbering_due() const;
  std::uint64_t watermark() const;
  // Likewise, but each of these transfers has been said: what is said next, where they are said,
  // too, stands behind them. Waits for who says one just now.
  std::uint64_t watermark_said();

  // A connection's sender: the `bytes` in `slot` have been handed to the network. True: a copy that
  // waits may go on.
  bool gone(std::uint64_t transfer, std::byte* slot, std::size_t bytes);
  // A connection's receiver. kProtocol: for bytes that were never sent.
  Status receipt(const protocol::BulkHeader& header);

  std::size_t remembered() const;

 private:
  struct Transfer {
    std::uint64_t call = 0;
    std::uint64_t total = 0;
    unsigned lanes = 1;
    std::uint64_t given = 0;   // Bytes with a slot, ever.
    std::uint64_t copied = 0;  // Bytes that the driver is done with.
    std::uint64_t said = 0;    // Of these, bytes for the client.
    std::size_t asked = 0;     // Chunks that the device has not come to.
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
  std::mutex saying_;         // Before all others: chunks are said in the order of their numbers.
  mutable std::mutex mutex_;  // Guards all below.
  Transfers transfers_;
  std::size_t unnumbered_ = 0;
  std::uint64_t numbered_ = 0;
  std::size_t unsent_ = 0;         // Bytes of all transfers, as they count.
  std::size_t spread_unsent_ = 0;  // Chunks that several connections may take.
  unsigned more_lanes_ = 0;        // Beyond the first, of those that wait: the most.
  bool starving_ = false;          // A copy waits for a slot, or for chunks to be done or gone.
  bool lacks_slots_ = false;       // For want of a slot: it need not wait for chunks to be gone.
};

}  // namespace gpurun::server
