// BulkState: what the parts of a Bulk share, and the one mutex that guards it.
//
// One mutex guards all of it, because one decision often needs several members. A chunk goes if its
// transfer is next, a slot is free and an earlier copy has arrived. The members do not lock. The
// mutex is not held over a copy of a chunk, a send or a receive. The listener is called without it,
// except `writes`. bulk.h has the rules for a change.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"
#include "client/bulk/bulk_window.h"
#include "client/bulk/completion_order.h"
#include "client/bulk/connection_use.h"
#include "client/bulk/incoming_transfers.h"
#include "client/bulk/outgoing_transfers.h"
#include "client/bulk/source_reads.h"
#include "protocol/bulk/receipts.h"

namespace gpurun::client {

struct BulkState {
  // One receipt covers so many received chunks, because each receipt wakes a thread on both sides.
  static constexpr std::size_t kChunksPerReceipt = 16;

  using Lock = std::unique_lock<std::mutex>;

  // Callbacks to the session, on Bulk's threads or on a calling thread. `writes` is called with
  // the mutex held, and the others without it.
  struct Listener {
    void* user = nullptr;
    void (*failed)(void* user, Status cause) = nullptr;
    // The worker's transfers 1 to `through` have arrived whole.
    void (*completed)(void* user, std::uint64_t through) = nullptr;
    // Bytes are about to be written into the program's memory.
    void (*writes)(void* user) = nullptr;
    // The worker may write no byte of the program's memory by itself any more, and every byte that
    // it has reported is in place when this returns. nullptr: it never may.
    void (*end_writes)(void* user) = nullptr;
    // More connections should be opened: see Bulk::wanted().
    void (*wants_more)(void* user) = nullptr;
  };
  // What the worker supports: Feature::kPackedChunks, kSpreadCopies.
  struct Known {
    bool packed_chunks = false;
    bool spread_copies = false;
  };

  BulkState(const Listener& session, Known worker, unsigned connections,
            std::optional<ConnectionCount::Bounds> bounds)
      : listener(session), known(worker), use(connections, worker.spread_copies, bounds) {}
  BulkState(const BulkState&) = delete;
  BulkState& operator=(const BulkState&) = delete;

  // Returns a new transfer's number. Any thread, with or without the mutex.
  std::uint64_t mint() noexcept { return last_transfer.fetch_add(1) + 1; }

  // All below with the mutex held.

  // Takes a slot for the chunk at `offset`. One must be free. The slot is the chunk's credit even
  // if its memory is not used.
  OutgoingTransfer::Chunk take_chunk(const OutgoingTransfer& out, std::uint64_t offset);
  // Around a read of `piece`, which is a part of the source of `out`.
  void begin_read(OutgoingTransfer& out, ByteView piece);
  void end_read(OutgoingTransfer& out, ByteView piece);
  // Slots are free, or another transfer is the oldest now.
  void wake_for_slots();
  // The senders in use have changed. Each checks by itself.
  void wake_senders_in_use();

  const Listener listener;
  const Known known;
  std::atomic<std::uint64_t> last_transfer{0};

  // Guards all below. ConnectionUse::lacks(), IncomingTransfers::outstanding(),
  // SourceReads::after_reads(), has_read() and count(), and BulkWindow::start_of() need no lock.
  mutable std::mutex mutex;
  ConnectionUse use;
  BulkWindow window;
  SourceReads reads;
  CompletionOrder completions;
  OutgoingTransfers outgoing{window, completions};
  IncomingTransfers incoming;
  protocol::Receipts receipts{kChunksPerReceipt};
  bool ended = false;
  std::condition_variable to_send;     // There is work for a sender that is in use.
  std::condition_variable unused;      // A sender may be in use now.
  std::condition_variable room;        // A slot is free.
  std::condition_variable write_done;  // A write to a destination has ended.
  std::condition_variable read_done;   // A read of a source has ended.
  std::condition_variable completed;   // Completions have arrived.
};

}  // namespace gpurun::client
