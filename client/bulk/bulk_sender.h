// BulkSender: the sender thread of one bulk connection. It takes chunks and receipts that are due,
// packs them, and sends them on its connection.
//
// OutgoingTransfers decides which transfer is next, and a chunk goes to the first sender that is
// free. Receipts for the worker go with whichever sender is free, and before chunks. A sender works
// while ConnectionUse counts its connection as in use, and sleeps otherwise.
//
// Threads: start() and join() are for the owner. All else runs on the sender thread, which takes
// the mutex of BulkState. It releases the mutex while it packs and sends. The packer and the chunks
// that go together belong to the thread, and need no lock. A failure ends the thread, which reports
// it without the mutex.
//
// Rules for a change:
// - A chunk costs no further lock, virtual call or allocation.
// - A chunk is in `sent`, in `chunks` and in the window's list before its send begins, because its
//   receipt may come before the send returns.
// - What is sent from the program's memory is in SourceReads until the send returns.
#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/status.h"
#include "client/bulk/bulk_state.h"
#include "client/bulk/outgoing_transfers.h"
#include "client/process/thread.h"
#include "protocol/bulk/chunk_packer.h"
#include "protocol/bulk/chunk_wire.h"
#include "transport/transport.h"

namespace gpurun::client {

class BulkSender {
 public:
  // Borrows `state` and `connection`, the one with number `index`. `packs`: the worker reads packed
  // chunks.
  BulkSender(BulkState& state, transport::Connection& connection, bool packs, std::size_t index)
      : state_(state), connection_(connection), index_(index), packer_(packs) {}
  BulkSender(const BulkSender&) = delete;
  BulkSender& operator=(const BulkSender&) = delete;

  Status start();
  void join() noexcept { thread_.join(); }

 private:
  using Chunk = OutgoingTransfer::Chunk;
  using Lock = BulkState::Lock;

  // A chunk that the sender has taken, to send several together.
  struct Taken {
    OutgoingTransfers::Pointer out;  // Empty: nothing was taken.
    Chunk chunk;
    ByteView payload;
    bool in_place = false;  // `payload` is the program's memory.
  };

  void run();
  // With the lock held. One that gets the lock may release it.
  Status send_receipts(Lock& lock);
  Taken take_next();
  void has_gone(const Taken& taken);
  Status send_next(Lock& lock);

  BulkState& state_;
  transport::Connection& connection_;
  const std::size_t index_;
  protocol::ChunkPacker packer_;  // For the thread only, as the next.
  protocol::ChunksToSend chunks_;
  Thread thread_;
};

}  // namespace gpurun::client
