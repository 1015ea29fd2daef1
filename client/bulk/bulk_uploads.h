// BulkUploads: the transfers to the worker, from their opening to the last receipt. BulkSender
// sends their chunks.
//
// A thread of the program opens a transfer and lets it go. Bytes that the program leaves alone are
// sent from its memory. Bytes that it may reuse earlier are copied into slots of the window here,
// on the program's own thread. No more are copied than the window takes. The worker's receipts free
// the slots. A transfer ends with its last receipt, or when it is forgotten or abandoned.
//
// Threads: any thread may call everything. Every public function takes the mutex of BulkState, and
// none calls the listener. send() and the functions that await something block.
//
// Rules for a change:
// - Transfers are opened in the order of their records, which the session guarantees. The oldest
//   transfer that is not filled may therefore always go on.
// - What a thread reads of a source is in SourceReads while it reads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "client/bulk/bulk_state.h"
#include "client/bulk/outgoing_transfers.h"
#include "protocol/bulk/chunk_wire.h"

namespace gpurun::client {

class BulkUploads {
 public:
  using Line = OutgoingTransfers::Line;

  // For a larger transfer over shared memory with a source that the program may reuse at once: only
  // this much is copied. The rest is sent at the same time, from the source.
  static constexpr std::size_t kCopiedBesideMemoryBytes = std::size_t{1} << 20;

  // Borrows `state`. `in_memory`: bytes pass through memory that both ends map.
  BulkUploads(BulkState& state, bool in_memory) noexcept : state_(state), in_memory_(in_memory) {}
  BulkUploads(const BulkUploads&) = delete;
  BulkUploads& operator=(const BulkUploads&) = delete;

  // See Bulk.
  std::uint64_t open(ByteView source, std::optional<Line> line);
  std::uint64_t open_in_turn(ByteView source, std::optional<Line> line);
  std::uint64_t open_pulled(ByteView source, std::optional<Line> line);
  std::uint64_t pulls_sent() const noexcept { return pulls_sent_.load(std::memory_order_relaxed); }
  // Bytes of pulled copies that the worker says to have read straight into the memory of a GPU.
  std::uint64_t direct_bytes() const noexcept {
    return direct_bytes_.load(std::memory_order_relaxed);
  }
  void forget(std::uint64_t transfer);
  bool send(std::uint64_t transfer);
  bool send_later(std::uint64_t transfer);
  std::uint64_t offer(std::shared_ptr<const Bytes> payload);
  Status wanted(std::uint64_t transfer, std::uint64_t watermark);
  bool reads(ByteView memory) const noexcept;
  void await_read(ByteView memory) noexcept;
  void await_sources_read(std::uint64_t last) noexcept;
  bool await_sources_read(std::uint64_t last, std::chrono::milliseconds at_most) noexcept;
  void trim() noexcept;

  // The worker is done with the first `header.offset` bytes of a transfer. kProtocol: they were
  // never sent.
  Status retire(const protocol::BulkHeader& header);
  // The worker takes no more bytes of a transfer.
  void abandon(std::uint64_t transfer);

 private:
  using Outgoing = OutgoingTransfer;
  using Chunk = OutgoingTransfer::Chunk;
  using Lock = BulkState::Lock;
  static constexpr std::size_t kTransferWindowBytes = OutgoingTransfers::kTransferWindowBytes;

  // All with the lock held.
  std::uint64_t add(Outgoing out, std::optional<Line> line);
  bool sources_are_read(std::uint64_t last) const noexcept;
  void copy_next(Lock& lock, Outgoing& out);
  void drop(Outgoing& out);
  void note_retired(const Outgoing& out, std::uint64_t bytes);

  BulkState& state_;
  const bool in_memory_;
  std::atomic<std::uint64_t> pulls_sent_{0};
  std::atomic<std::uint64_t> direct_bytes_{0};
};

}  // namespace gpurun::client
