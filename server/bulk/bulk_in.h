// BulkIn: the bytes that the client sends beside its calls, from their arrival to where they are
// wanted: copies to the device, in staging slots, and whole payloads (module images).
//
// Bytes may come before the call that names them is decoded. What is staged is bounded by the
// client's window, limits::kBulkWindowBytes: it gets room for more only as slots retire. A peer
// that sends what does not fit the contract gets kProtocol, which ends the session.
//
// Any thread, but for what a comment gives to the executor's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "protocol/frame.h"
#include "server/bulk/staging.h"
#include "server/bulk/whole_payload.h"

namespace gpurun::server {

// Whole payloads that wait for their calls, together; CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::uint64_t kWholeBytesMax = std::uint64_t{2} * limits::kImageBytesMax;
// Transfers of failed calls whose bytes may still come, or that the client gave up before their
// call came; the oldest is forgotten beyond.
inline constexpr std::size_t kAbandonedMax = 65'536;

class BulkIn {
 public:
  // What BulkIn tells, without a lock held.
  struct Listener {
    void* user = nullptr;
    // A call that waits for bytes may go on.
    void (*arrived)(void* user) = nullptr;
    // kChunkReceipt, kChunkAbandoned and kChunkWanted are due.
    void (*say)(void* user, protocol::FrameKind kind, const protocol::BulkHeader& header) = nullptr;
  };
  BulkIn(Staging& staging, Listener listener) : staging_(staging), listener_(listener) {}
  BulkIn(const BulkIn&) = delete;
  BulkIn& operator=(const BulkIn&) = delete;

  // A connection's receiver.

  // Where the bytes of a chunk go. Followed by landed() once they are there.
  struct Landing {
    std::byte* into = nullptr;            // nullptr: nobody wants them any more.
    bool staged = false;                  // `into` is a slot.
    std::shared_ptr<WholePayload> whole;  // Keeps `into` alive.
  };
  // kProtocol: no such chunk can be, or it comes twice, or the client has no credit for it.
  Result<Landing> claim(const protocol::BulkHeader& header, std::size_t bytes);
  // True: a call that waits for bytes may go on.
  bool landed(const protocol::BulkHeader& header, std::size_t bytes, const Landing& landing);

  // The client will send nothing more of it: its call fails.
  void given_up(const protocol::BulkHeader& header);

  // The executor.

  // The call `sequence` names `transfer`, of `total` bytes. 0, also when it said so before;
  // INVALID_VALUE when that cannot be: the transfer is another call's, or of another size.
  int expect_copy(std::uint64_t transfer, std::uint64_t sequence, std::uint64_t total);
  // Likewise for a whole payload; the chunks say how large.
  int expect_whole(std::uint64_t transfer, std::uint64_t sequence);

  struct Chunk {
    std::byte* bytes = nullptr;
    std::uint64_t offset = 0;
    std::size_t size = 0;
  };
  // The next bytes of a copy, in order; nothing when they have not come.
  std::optional<Chunk> next(std::uint64_t transfer);
  // Where those lie that next() would give; nullptr likewise.
  const std::byte* at_hand(std::uint64_t transfer) const;
  // Every byte of the copy has been given out by next().
  bool all_given(std::uint64_t transfer) const;
  // The device has the chunk. In the order of next().
  void retired(std::uint64_t transfer, const Chunk& chunk);

  // 0 and the payload once it is whole; nullptr before. OUT_OF_MEMORY, INVALID_VALUE: it will not
  // be. It is the caller's then, and the transfer is over.
  int take_whole(std::uint64_t transfer, std::shared_ptr<WholePayload>* payload);

  // Likewise for one that the client only offers, from a thread that may block: asks for it and
  // waits until it is whole or will not be. One call at a time asks for a transfer.
  int fetch_whole(std::uint64_t transfer, std::uint64_t sequence,
                  std::shared_ptr<WholePayload>* payload);
  // The session ends: nothing more comes. Wakes fetch_whole(), which returns UNKNOWN then.
  void stop();

  // The call `sequence` has ended. What it did not consume is abandoned.
  void end_call(std::uint64_t transfer, std::uint64_t sequence);

  // Transfers that are remembered, for tests.
  std::size_t remembered() const;

 private:
  // Which bytes of a transfer have come so far; pieces in any order, none twice.
  class Coverage {
   public:
    bool add(std::uint64_t offset, std::uint64_t bytes);  // False: it was there already.
    std::uint64_t through() const { return through_; }    // No gap below.

   private:
    std::uint64_t through_ = 0;
    std::map<std::uint64_t, std::uint64_t> beyond_;
  };
  enum class Kind : std::uint8_t { kUnnamed, kCopy, kWhole, kAbandoned };
  struct Transfer {
    Kind kind = Kind::kUnnamed;
    bool total_known = false;
    bool drained = false;   // Chunks that came before the name have been moved to `whole`.
    int failure = 0;        // It will not be whole.
    bool given_up = false;  // By the client.
    std::uint64_t call = 0;
    std::uint64_t total = 0;
    Coverage claimed;
    Coverage came;  // kWhole.
    std::map<std::uint64_t, Chunk> staged;
    std::uint64_t given = 0;    // kCopy: bytes given out.
    std::uint64_t retired = 0;  // kCopy.
    std::shared_ptr<WholePayload> whole;
  };
  using Says = std::deque<std::pair<protocol::FrameKind, protocol::BulkHeader>>;

  bool make_whole(Transfer& transfer);
  int take(std::uint64_t number, std::shared_ptr<WholePayload>* payload);
  void tell_what_came(std::uint64_t number, const Transfer& transfer, std::uint64_t before,
                      Says& says);
  void move_to_whole(std::uint64_t number, Transfer& transfer, Says& says);
  void abandon(std::uint64_t number, Transfer& transfer, Says& says);
  void remember_end(std::uint64_t number);
  void say(const Says& says) const;

  Staging& staging_;
  const Listener listener_;
  mutable std::mutex mutex_;      // Guards all below.
  std::condition_variable came_;  // A whole payload, or the end.
  bool stopped_ = false;
  std::map<std::uint64_t, Transfer> transfers_;
  std::deque<std::uint64_t> abandoned_;  // Oldest first.
  std::uint64_t whole_bytes_ = 0;
};

}  // namespace gpurun::server
