// BulkIn: the bytes that the client sends beside its calls, from their arrival to their use. These
// are copies to the device, in staging slots, and whole payloads (module images).
//
// Bytes may come before the call that names them is decoded. The client's window,
// limits::kBulkWindowBytes, bounds the staged bytes: it grows again only as slots retire. A peer
// that breaks the contract gets kProtocol, which ends the session.
//
// Any thread, except for the functions that a comment reserves for the executor.
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
#include "protocol/log/frame.h"
#include "server/bulk/staging.h"
#include "server/bulk/whole_payload.h"

namespace gpurun::server {

// The bytes of all whole payloads that wait for their calls. CUDA_ERROR_OUT_OF_MEMORY beyond.
inline constexpr std::uint64_t kWholeBytesMax = std::uint64_t{2} * limits::kImageBytesMax;
// Transfers of failed calls that may still get bytes, or that the client gave up before their call
// came. Beyond this the oldest is forgotten.
inline constexpr std::size_t kAbandonedMax = 65'536;

class BulkIn {
 public:
  // The notices of BulkIn, sent without a lock held.
  struct Listener {
    void* user = nullptr;
    // A call that waits for bytes may continue.
    void (*arrived)(void* user) = nullptr;
    // A kChunkReceipt, kChunkAbandoned or kChunkWanted must be sent.
    void (*say)(void* user, protocol::FrameKind kind, const protocol::BulkHeader& header) = nullptr;
  };
  BulkIn(Staging& staging, Listener listener) : staging_(staging), listener_(listener) {}
  BulkIn(const BulkIn&) = delete;
  BulkIn& operator=(const BulkIn&) = delete;

  // For the receiver of a connection.

  // The place for the bytes of a chunk. landed() follows once they are there.
  struct Landing {
    std::byte* into = nullptr;            // nullptr: the bytes are not wanted any more.
    bool staged = false;                  // `into` is a slot.
    std::shared_ptr<WholePayload> whole;  // Keeps `into` alive.
  };
  // kProtocol: no such chunk can exist, or it comes twice, or the client has no credit for it.
  Result<Landing> claim(const protocol::BulkHeader& header, std::size_t bytes);
  // True: a call that waits for bytes may continue.
  bool landed(const protocol::BulkHeader& header, std::size_t bytes, const Landing& landing);

  // The client sends nothing more of the transfer, and its call fails.
  void given_up(const protocol::BulkHeader& header);

  // For the executor.

  // The call `sequence` names `transfer`, of `total` bytes. Returns 0, also for a repetition of the
  // same call. INVALID_VALUE: the transfer belongs to another call or has another size.
  int expect_copy(std::uint64_t transfer, std::uint64_t sequence, std::uint64_t total);
  // As expect_copy(), for a whole payload. The chunks give its size.
  int expect_whole(std::uint64_t transfer, std::uint64_t sequence);

  struct Chunk {
    std::byte* bytes = nullptr;
    std::uint64_t offset = 0;
    std::size_t size = 0;
  };
  // The next bytes of a copy, in order. Nothing when they have not come.
  std::optional<Chunk> next(std::uint64_t transfer);
  // The address of the bytes that next() would return. nullptr when they have not come.
  const std::byte* at_hand(std::uint64_t transfer) const;
  // next() has returned every byte of the copy.
  bool all_given(std::uint64_t transfer) const;
  // The device has the chunk. In the order of next().
  void retired(std::uint64_t transfer, const Chunk& chunk);

  // Returns 0 and the payload once it is whole, and 0 and nullptr before. OUT_OF_MEMORY,
  // INVALID_VALUE: it will never be whole. After success the caller owns the payload and the
  // transfer has ended.
  int take_whole(std::uint64_t transfer, std::shared_ptr<WholePayload>* payload);

  // As take_whole(), for a payload that the client only offers. On a thread that may block:
  // requests the payload and waits until it is whole or never will be. Only one call at a time per
  // transfer.
  int fetch_whole(std::uint64_t transfer, std::uint64_t sequence,
                  std::shared_ptr<WholePayload>* payload);
  // The session ends, and nothing more comes. Wakes fetch_whole(), which then returns UNKNOWN.
  void stop();

  // The call `sequence` has ended. Bytes that it did not consume are abandoned.
  void end_call(std::uint64_t transfer, std::uint64_t sequence);

  // The number of remembered transfers, for tests.
  std::size_t remembered() const;

 private:
  // The bytes of a transfer that have come so far, as pieces in any order, none twice.
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
    int failure = 0;        // It will never be whole.
    bool given_up = false;  // By the client.
    std::uint64_t call = 0;
    std::uint64_t total = 0;
    Coverage claimed;
    Coverage came;  // For kWhole.
    std::map<std::uint64_t, Chunk> staged;
    std::uint64_t given = 0;    // For kCopy: bytes returned by next().
    std::uint64_t retired = 0;  // For kCopy.
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
  std::condition_variable came_;  // A whole payload is complete, or the session ends.
  bool stopped_ = false;
  std::map<std::uint64_t, Transfer> transfers_;
  std::deque<std::uint64_t> abandoned_;  // Oldest first.
  std::uint64_t whole_bytes_ = 0;
};

}  // namespace gpurun::server
