// Bulk: the payload bytes of copies and images, which travel beside the command log in chunks of
// limits::kBulkChunkBytes. It owns the parts and is what callers use.
//
// To the worker. open() gives a transfer its number. The caller appends the record that names it,
// then calls send(). A chunk takes a slot of the window (BulkWindow) and goes to the first sender
// thread that is free. OutgoingTransfers decides which transfer is next. Bytes that the program
// leaves alone until they are sent go out from the program's memory. Only bytes that it may reuse
// earlier are copied into their slot, on the program's own thread. The worker's receipt frees the
// slot. The bytes under way are therefore at most limits::kBulkWindowBytes.
//
// From the worker. expect() notes where the bytes go, before the record is appended. A receiver
// thread reads a chunk straight into the program's memory (docs/adr/0026), unless that has gaps or
// a buffer is faster. IncomingTransfers knows the places. Few bytes come on the log (take_whole()).
// CompletionOrder puts the completions in order, and the session learns up to which number all
// bytes are there.
//
// The parts. A part uses only parts before it.
// - BulkState is what the parts share: the mutex, all that it guards, and the conditions.
// - BulkUploads has the transfers to the worker. It opens them, copies bytes and takes receipts.
// - BulkDownloads has the transfers from the worker: their places, completions and ends.
// - BulkSender is the sender thread of one connection. It takes, packs and sends chunks.
// - BulkReceiver is the receiver thread of one connection. It reads frames and writes chunks.
// - BulkConnections has the connections with these threads, and those that join.
//
// Threads. Each connection has a sender and a receiver thread. A receiver thread also handles the
// worker's receipts and requests. Receipts for the worker go with whichever sender is free.
// ConnectionUse decides how many senders work. Any thread of the program may call everything.
//
// Locks. The mutex of BulkState guards all parts. It is not held over a copy of a chunk, a send or
// a receive. The session's callbacks are called without it, except `writes`. Callers may hold the
// lock of the session's Copies.
//
// Rules for a change here:
// - Transfers are opened in the order of their records, which the session guarantees. The oldest
//   transfer that is not filled may therefore always go on.
// - A change that may let a thread go on notifies that thread's condition. end() notifies all but
//   write_done, because a write in progress ends with its connection.
// - What a thread reads of a source is in SourceReads while it reads. Before anything acts on what
//   the worker sent, it calls after_reads().
// - `over` and `dropped` of a transfer may change whenever the mutex is released.
// - A chunk costs no further lock, virtual call or allocation.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "client/bulk/bulk_connections.h"
#include "client/bulk/bulk_downloads.h"
#include "client/bulk/bulk_state.h"
#include "client/bulk/bulk_uploads.h"
#include "client/bulk/completion_order.h"
#include "client/bulk/connection_use.h"
#include "client/bulk/host_box.h"
#include "client/bulk/outgoing_transfers.h"
#include "transport/transport.h"

namespace gpurun::client {

class Bulk {
 public:
  static constexpr std::size_t kTransferWindowBytes = OutgoingTransfers::kTransferWindowBytes;
  static constexpr std::size_t kTurnSlots = OutgoingTransfers::kTurnSlots;
  static constexpr std::size_t kOfferedBytesMax = OutgoingTransfers::kOfferedBytesMax;
  static constexpr std::size_t kEarlyCompletionsMax = CompletionOrder::kEarlyMax;
  static constexpr std::size_t kKeptBytesMax = CompletionOrder::kKeptBytesMax;
  static constexpr std::size_t kKeptBytesEach = CompletionOrder::kKeptBytesEach;
  static constexpr std::size_t kCopiedBesideMemoryBytes = BulkUploads::kCopiedBesideMemoryBytes;
  static constexpr std::size_t kChunksPerReceipt = BulkState::kChunksPerReceipt;

  using Listener = BulkState::Listener;
  using Known = BulkState::Known;

  // With `bounds`, starts with one connection, which others may join. It then measures how many
  // connections help in each direction, and uses those. Without `bounds`, uses all connections.
  Bulk(std::vector<transport::Connection*> connections, Listener listener, Known known,
       std::optional<ConnectionCount::Bounds> bounds = {});
  ~Bulk() = default;  // After join().
  Bulk(const Bulk&) = delete;
  Bulk& operator=(const Bulk&) = delete;

  Status start();
  // Wakes all waiting threads, because nothing moves any more. Shuts down the connections that
  // joined. The owner of the others shuts those down.
  void end() noexcept;
  void join() noexcept { connections_.join(); }

  // The number of connections that Bulk wants, and the number that it has.
  unsigned wanted() const noexcept { return connections_.wanted(); }
  unsigned open() const noexcept { return connections_.open(); }
  using Used = ConnectionUse::Used;
  Used used() const noexcept { return connections_.used(); }
  Used used_from_device() const noexcept { return connections_.used_from_device(); }
  // Adds a wanted connection that the worker already reads. `their_cores`: the worker's cores. A
  // useless connection is kept as well, because the worker ends the session when one of its
  // connections ends.
  void add(std::unique_ptr<transport::Connection> connection, unsigned their_cores) {
    connections_.add(std::move(connection), their_cores);
  }
  // No further connection can be opened now. One thread at a time calls add() and cannot_add(). It
  // must have ended before join().
  void cannot_add() { connections_.cannot_add(); }

  // Returns the window's memory to the system if nothing is under way and nothing has begun since
  // the last call. Call it from time to time.
  void trim() noexcept { uploads_.trim(); }

  // Returns a new transfer's number, which is never 0 and never reused.
  std::uint64_t mint() noexcept { return state_.mint(); }

  // A line of transfers with bytes that are needed in the order in which they are opened: those of
  // one stream. Two streams in one line cost fairness and nothing more.
  using Line = OutgoingTransfers::Line;

  // Opens a transfer to the worker, and returns its number. Nothing is sent yet. `source` is not
  // empty. Without a line the transfer takes turns with all others.
  std::uint64_t open(ByteView source, std::optional<Line> line = {}) {
    return uploads_.open(source, line);
  }
  // As open(), for a copy that takes its turn in a stream. It is sent when the worker asks for it
  // (wanted()), and its source is not read earlier.
  std::uint64_t open_in_turn(ByteView source, std::optional<Line> line = {}) {
    return uploads_.open_in_turn(source, line);
  }
  // As open_in_turn(), for a copy with a source that the worker reads by itself. One receipt ends
  // it. It is sent only if the worker asks for it.
  std::uint64_t open_pulled(ByteView source, std::optional<Line> line = {}) {
    return uploads_.open_pulled(source, line);
  }
  // How many of these the worker has asked for.
  std::uint64_t pulls_sent() const noexcept { return uploads_.pulls_sent(); }
  std::uint64_t direct_bytes() const noexcept { return uploads_.direct_bytes(); }
  // Drops a transfer because its record was not appended.
  void forget(std::uint64_t transfer) { uploads_.forget(transfer); }
  // Returns when the source may be reused: its end is copied, and all earlier bytes are sent. The
  // copied part is at most kTransferWindowBytes. Returns false if the session has ended.
  bool send(std::uint64_t transfer) { return uploads_.send(transfer); }
  // Returns at once. The source must stay untouched until the call that names the transfer is
  // complete.
  bool send_later(std::uint64_t transfer) { return uploads_.send_later(transfer); }

  // Offers a transfer: `payload` is kept, and sent if the worker asks for it. Returns 0 if that
  // exceeds kOfferedBytesMax. The payload must then be sent or asked about.
  std::uint64_t offer(std::shared_ptr<const Bytes> payload) {
    return uploads_.offer(std::move(payload));
  }
  // The worker asks for a transfer that was offered or that takes its turn. The transfer is read
  // once the worker's transfers 1 to `watermark` have arrived whole. kProtocol: it cannot be asked
  // for.
  Status wanted(std::uint64_t transfer, std::uint64_t watermark) {
    return uploads_.wanted(transfer, watermark);
  }
  // Call it before acting on anything that the worker sent. It orders that action after every read
  // of a source that the worker may know of. A program that learns that its stream has passed a
  // copy may overwrite the source. Nothing else in this process orders our threads' reads before
  // that.
  void after_reads() const noexcept { state_.reads.after_reads(); }

  // Returns whether some of `memory` must still be read for a transfer.
  bool reads(ByteView memory) const noexcept { return uploads_.reads(memory); }
  // Waits until none of `memory` must be read any more, or the session ends.
  void await_read(ByteView memory) noexcept { uploads_.await_read(memory); }
  // Waits until the sources of the transfers up to number `last` are read, or the session ends.
  // Offered transfers do not count. Transfers that other threads begin meanwhile do not delay it.
  void await_sources_read(std::uint64_t last) noexcept { uploads_.await_sources_read(last); }
  // As above, for `at_most`. Returns whether they are read, or the session has ended.
  bool await_sources_read(std::uint64_t last, std::chrono::milliseconds at_most) noexcept {
    return uploads_.await_sources_read(last, at_most);
  }
  std::uint64_t last_begun() const noexcept { return state_.last_transfer.load(); }

  // Announces the bytes of `transfer`, which go to their places in `destination`. Call it before
  // the record is appended. `unattended`: no thread waits for the bytes (see outstanding()).
  // Returns the number of connections that may carry them, for the record. 0: only the first one.
  unsigned expect(std::uint64_t transfer, const HostBox& destination, bool unattended) {
    return downloads_.expect(transfer, destination, unattended);
  }
  // As expect(), for bytes that the worker's device writes into lent memory. `destination` has no
  // gaps. What it cannot write comes over the first connection. Listener::end_writes comes before.
  void expect_written(std::uint64_t transfer, const HostBox& destination, bool unattended) {
    downloads_.expect_written(transfer, destination, unattended);
  }
  // Takes all bytes of `transfer` from the log. `number` is the transfer's completion. The bytes
  // are written now, or kept until the completions before it have arrived on other threads. Returns
  // false if too many bytes are kept already. The caller then waits with await_completion(). One
  // thread at a time. kProtocol: no such transfer, another size, or a completion that comes twice.
  Result<bool> take_whole(std::uint64_t transfer, std::uint64_t number, ByteView bytes) {
    return downloads_.take_whole(transfer, number, bytes);
  }
  // Waits until a completion beyond `behind` has arrived, for `at_most`. Returns the last
  // completion that has arrived, or nullopt when the session has ended.
  std::optional<std::uint64_t> await_completion(std::uint64_t behind,
                                                std::chrono::milliseconds at_most) {
    return downloads_.await_completion(behind, at_most);
  }
  // Nothing is written to the destination after this call. Returns true if the transfer had not
  // arrived whole.
  bool cancel(std::uint64_t transfer) { return downloads_.cancel(transfer); }
  // Returns whether an unattended transfer has not arrived yet.
  bool outstanding() const noexcept { return downloads_.outstanding(); }
  // The worker's device may write bytes now that show the program what nothing has told this
  // process. Any thread.
  bool any_written() const noexcept { return downloads_.any_written(); }
  // Returns whether an unattended transfer that has not arrived yet goes to some of `memory`.
  bool outstanding(ByteView memory) const noexcept { return downloads_.outstanding(memory); }
  // Waits until the worker's device writes nothing to `memory` any more, or the session has ended,
  // for `at_most`. Returns whether that is so.
  bool await_written(ByteView memory, std::chrono::milliseconds at_most) noexcept {
    return downloads_.await_written(memory, at_most);
  }
  // Returns whether threads of this process write bytes of a transfer to some of `memory`.
  bool receives(ByteView memory) const noexcept { return downloads_.receives(memory); }

 private:
  BulkState state_;
  BulkUploads uploads_;
  BulkDownloads downloads_;
  BulkConnections connections_;
};

}  // namespace gpurun::client
