// BulkReceiver: the receiver thread of one bulk connection. It reads frames and handles them.
//
// A chunk goes straight into the program's memory (docs/adr/0026), unless that has gaps or a buffer
// is faster. The worker's receipts and requests go to BulkUploads. A completion goes to
// BulkDownloads. Receipts for chunks are noted, and a sender sends them.
//
// Threads: start() and join() are for the owner. All else runs on the receiver thread. It takes the
// mutex of BulkState for short times, and releases it while it receives and writes bytes. The
// listener is called without the mutex, except `writes`. A failure ends the thread, which reports
// it. Waits here have no bound of their own, because the log channel watches for silence and shuts
// this connection down.
//
// Rules for a change:
// - A thread claims bytes of a transfer before it receives them, and is one of its writers until
//   they are in place. cancel() waits for writers.
// - Before anything acts on what the worker sent, it calls after_reads().
// - A chunk costs no further lock, virtual call or allocation.
// - The worker's right to write ends before a byte of such a transfer comes by a chunk. A late
// write
//   could otherwise come behind the completion.
#pragma once

#include "base/bytes.h"
#include "base/status.h"
#include "client/bulk/bulk_downloads.h"
#include "client/bulk/bulk_state.h"
#include "client/bulk/bulk_uploads.h"
#include "client/bulk/incoming_transfers.h"
#include "client/process/thread.h"
#include "protocol/bulk/chunk_wire.h"
#include "transport/transport.h"

namespace gpurun::protocol {
class BulkHeads;
}

namespace gpurun::client {

class BulkReceiver {
 public:
  // Borrows all arguments.
  BulkReceiver(BulkState& state, BulkUploads& uploads, BulkDownloads& downloads,
               transport::Connection& connection) noexcept
      : state_(state), uploads_(uploads), downloads_(downloads), connection_(connection) {}
  BulkReceiver(const BulkReceiver&) = delete;
  BulkReceiver& operator=(const BulkReceiver&) = delete;

  Status start();
  void join() noexcept { thread_.join(); }

 private:
  using Incoming = IncomingTransfer;

  // The thread's buffers, reused for every chunk.
  struct Scratch {
    Bytes packed;
    // A chunk on its way to a destination with gaps, or where that is faster.
    Bytes staged;
  };

  void run();
  Status receive_frame(protocol::BulkHeads& heads, Scratch& scratch);
  Status receive_chunk(const protocol::BulkHeader& header, const protocol::ChunkOnWire& chunk,
                       Scratch& scratch);
  Status abandoned(const protocol::BulkHeader& header);
  Status written(const protocol::BulkHeader& header);
  // Whether the connection has left its carrier, so that frames do not follow the writes any more.
  bool has_left_carrier() const noexcept;
  void end_writes() const;
  // Lets the session open more connections if the counts want them. It calls the listener.
  void ask_for_more();
  // With the lock held.
  void note_receipt(const protocol::BulkHeader& receipt);

  BulkState& state_;
  BulkUploads& uploads_;
  BulkDownloads& downloads_;
  transport::Connection& connection_;
  Thread thread_;
};

}  // namespace gpurun::client
