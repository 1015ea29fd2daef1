// OutgoingTransfers: the transfers to the worker, and which of them goes next.
//
// Transfers stand in lines, one for each stream. Lines take turns, so that a large copy of one
// stream does not delay a small copy of another. Transfers of one line go in order, as the worker
// needs them. Bytes that came too early would have left the worker's caches before their use.
//
// The window is shared with care. The oldest transfer that is not filled may always go on, because
// a window full of later ones could only wait for it. A transfer that takes its turn in a stream is
// outside this order. The worker asks for it when the stream reaches it, so its slots always
// retire. Some slots are reserved for the oldest, and some for transfers in turn.
//
// One thread at a time. Bulk locks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "client/bulk/bulk_window.h"
#include "client/bulk/completion_order.h"
#include "protocol/limits.h"

namespace gpurun::client {

// Bytes [0, head_end) are sent from the source itself. Later bytes are copied into slots.
struct OutgoingTransfer {
  using Line = std::pair<std::uint64_t, std::uint64_t>;
  struct Chunk {
    std::size_t slot = 0;
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };

  std::uint64_t transfer = 0;
  Line line;
  ByteView source;
  bool later = false;                    // The caller does not wait. All of it is head.
  std::uint64_t after = 0;               // Waits for completions 1 to this one.
  bool on_demand = false;                // Waits until the worker asks for it.
  bool in_turn = false;                  // The worker asks when a stream reaches it.
  bool pulled = false;                   // The worker reads it. It asks only if that fails.
  std::shared_ptr<const Bytes> offered;  // Backs `source` of an offered transfer.
  bool over = false;                     // The worker abandoned it.
  bool dropped = false;                  // No longer in OutgoingTransfers.
  std::uint64_t head_end = 0;
  std::uint64_t head = 0;    // Bytes of the head that were taken for sending.
  std::uint64_t filled = 0;  // From head_end on: earlier bytes are copied.
  std::uint64_t sent = 0;    // Bytes handed to a connection.
  std::uint64_t retired = 0;
  int reading = 0;           // Chunks that are being read from the source.
  std::deque<Chunk> ready;   // Copied. Sent after the head.
  std::deque<Chunk> chunks;  // Handed to a connection, not yet retired.

  bool taken() const { return head == head_end && filled == source.size(); }
  bool handed_over() const { return dropped || sent == source.size(); }
  std::size_t chunk_bytes(std::uint64_t offset) const {
    return static_cast<std::size_t>(
        std::min<std::uint64_t>(limits::kBulkChunkBytes, source.size() - offset));
  }
  ByteView piece(const Chunk& chunk) const {
    return source.subspan(static_cast<std::size_t>(chunk.offset), chunk.bytes);
  }
  // It may go, and its caller does not wait.
  void begin_later() {
    later = true;
    head_end = filled = source.size();
  }
};

class OutgoingTransfers {
 public:
  using Line = OutgoingTransfer::Line;
  using Pointer = std::shared_ptr<OutgoingTransfer>;

  // Of the window, one transfer takes at most this.
  static constexpr std::size_t kTransferWindowBytes = std::size_t{16} << 20;
  // Slots that only the oldest transfer may take, and slots that only transfers in turn may take.
  static constexpr std::size_t kReservedSlots = 8;
  static constexpr std::size_t kTurnSlots = 4;
  static_assert(kTurnSlots >= limits::kChunksPerReceipt && kReservedSlots > kTurnSlots);
  // Of all offered transfers.
  static constexpr std::size_t kOfferedBytesMax = std::size_t{64} << 20;

  OutgoingTransfers(const BulkWindow& window, const CompletionOrder& completions)
      : window_(window), completions_(completions) {}
  OutgoingTransfers(const OutgoingTransfers&) = delete;
  OutgoingTransfers& operator=(const OutgoingTransfers&) = delete;

  // Adds a transfer with a number. Without a line it takes turns with all others.
  void add(OutgoingTransfer out, std::optional<Line> line);
  bool may_offer(std::size_t bytes) const { return bytes <= kOfferedBytesMax - offered_bytes_; }
  // nullptr: it is retired, abandoned or forgotten.
  Pointer find(std::uint64_t transfer) const;
  // Threads that have `out` learn it by `dropped`. The caller has it, too.
  void drop(OutgoingTransfer& out);
  // The worker asks for a transfer. It is read once the completions 1 to `watermark` have arrived.
  // kProtocol: it cannot be asked for.
  Status want(std::uint64_t transfer, std::uint64_t watermark);

  // Returns whether some of `out` may be copied into a slot now. Bytes that are copied before the
  // head has gone never take the slots that the head needs.
  bool may_copy(const OutgoingTransfer& out) const noexcept;
  // Returns the next transfer that can go on, after the line that had the last turn. nullptr: none.
  Pointer next_to_send();
  // The line of `out` has its turn.
  void serve(const OutgoingTransfer& out) { last_served_ = out.line; }
  // Returns whether some line may have transfers.
  bool has_lines() const noexcept { return !lines_.empty(); }
  // Returns whether few slots are free. Then it matters which transfer is the oldest.
  bool is_tight() const noexcept { return window_.free_count() <= kReservedSlots + kTurnSlots; }

  // Returns whether some of `memory` must still be read for a transfer, beside what is being read.
  bool needs(ByteView memory) const noexcept;
  // As above, for the sources of transfers up to number `last`. Offered ones do not count.
  bool needs_up_to(std::uint64_t last) const noexcept;

 private:
  using InLine = std::deque<Pointer>;

  bool has_slot_for(const OutgoingTransfer& out) const noexcept;
  bool may_send(const OutgoingTransfer& out) const noexcept;
  Pointer first_to_send(InLine& line);

  const BulkWindow& window_;
  const CompletionOrder& completions_;
  std::map<std::uint64_t, Pointer> transfers_;
  std::size_t offered_bytes_ = 0;
  std::map<Line, InLine> lines_;  // Transfers that may go once their bytes are there.
  Line last_served_;              // The line that had the last turn.
};

}  // namespace gpurun::client
