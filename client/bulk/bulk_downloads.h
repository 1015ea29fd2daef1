// BulkDownloads: the transfers from the worker: where their bytes go, and the order in which they
// complete. BulkReceiver receives their chunks.
//
// A thread of the program announces a transfer before it appends the record. IncomingTransfers
// knows the place. Chunks are written there as they come. Few bytes come on the log, and are
// written here (take_whole()). CompletionOrder puts the completions in order, and the session
// learns up to which number all bytes are there. Bytes on the log are written in that order, too.
//
// Threads: any thread may call everything, and take_whole() one thread at a time. Every function
// takes the mutex of BulkState, except outstanding() without memory. cancel(), take_whole() and
// complete() call the listener without the mutex. take_whole() and complete() call its `writes`
// with it. cancel(), await_turn() and await_completion() block.
//
// Rules for a change:
// - A completion is reported only when all bytes up to it are in their places.
// - Nothing is written to a destination after cancel(). It waits for the threads that write.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/result.h"
#include "client/bulk/bulk_state.h"
#include "client/bulk/host_box.h"
#include "client/bulk/incoming_transfers.h"

namespace gpurun::client {

class BulkDownloads {
 public:
  // Borrows `state`.
  explicit BulkDownloads(BulkState& state) noexcept : state_(state) {}
  BulkDownloads(const BulkDownloads&) = delete;
  BulkDownloads& operator=(const BulkDownloads&) = delete;

  // See Bulk.
  unsigned expect(std::uint64_t transfer, const HostBox& destination, bool unattended);
  void expect_written(std::uint64_t transfer, const HostBox& destination, bool unattended);
  Result<bool> take_whole(std::uint64_t transfer, std::uint64_t number, ByteView bytes);
  std::optional<std::uint64_t> await_completion(std::uint64_t behind,
                                                std::chrono::milliseconds at_most);
  bool cancel(std::uint64_t transfer);
  bool outstanding() const noexcept { return state_.incoming.outstanding(); }
  bool any_written() const noexcept { return state_.incoming.any_written(); }
  bool outstanding(ByteView memory) const noexcept;
  bool receives(ByteView memory) const noexcept;
  bool await_written(ByteView memory, std::chrono::milliseconds at_most) noexcept;

  // For a chunk that may only be written once transfers 1 to `behind` have arrived: waits for them.
  // kProtocol: they were never begun. kPeerGone: the session has ended.
  Status await_turn(std::uint64_t behind);
  // The worker's device has written the first `header.offset` bytes of a transfer. kProtocol: it
  // was not to do that.
  Status note_written(const protocol::BulkHeader& header);
  // The bytes of completion `watermark` are in their places. Reports all completions that have no
  // gap before them. kProtocol: it comes twice or far too early, or kept bytes do not fit.
  Status complete(std::uint64_t watermark);

 private:
  using Incoming = IncomingTransfer;
  using Lock = BulkState::Lock;

  // With the lock held.
  Status write_whole(std::uint64_t transfer, ByteView bytes);

  BulkState& state_;
};

}  // namespace gpurun::client
