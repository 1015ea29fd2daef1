// Bulk: the payload bytes of copies and images, which travel beside the command log in chunks of
// limits::kBulkChunkBytes.
//
// Streams take turns, so that a large copy of one does not delay a small copy of another. Transfers
// of one stream go in order, as the worker needs them. Bytes that came too early would have left
// the worker's caches before their use.
//
// A chunk holds a slot of the window from its sending until the worker's receipt reports it
// retired. The bytes under way are therefore at most limits::kBulkWindowBytes. One transfer takes
// at most kTransferWindowBytes of them. Bytes that the program leaves alone until they are sent go
// out from the program's memory. Only bytes that it may reuse earlier are copied into their slot.
// Received bytes go straight into the program's memory (docs/adr/0026), unless it has gaps or a
// buffer is faster.
//
// Any thread may call everything. First open() the transfer, then append the record that names it,
// then send. Transfers are opened in the order of their records, which Session guarantees. The
// oldest transfer that is not filled may always go on. A window full of later ones could only wait
// for it. A transfer that takes its turn in a stream is outside this order. The worker asks for it
// when the stream reaches it, so its slots always retire. Some slots are reserved for such
// transfers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "client/bulk/connection_count.h"
#include "client/bulk/host_box.h"
#include "client/process/thread.h"
#include "protocol/bulk/chunk_packer.h"
#include "protocol/bulk/chunk_wire.h"
#include "protocol/bulk/receipts.h"
#include "protocol/log/frame.h"
#include "transport/transport.h"

namespace gpurun::protocol {
class BulkHeads;
}

namespace gpurun::client {

class Bulk {
 public:
  static constexpr std::size_t kTransferWindowBytes = std::size_t{16} << 20;
  // For a larger transfer over shared memory with a source that the program may reuse at once: only
  // this much is copied. The rest is sent at the same time, from the source.
  static constexpr std::size_t kCopiedBesideMemoryBytes = std::size_t{1} << 20;
  // One receipt covers so many received chunks, because each receipt wakes a thread on both sides.
  static constexpr std::size_t kChunksPerReceipt = 16;
  // Completions that may arrive before an earlier one. More are a protocol error.
  static constexpr std::size_t kEarlyCompletionsMax = 65'536;

  // Callbacks to the session, on Bulk's threads or on a calling thread. `writes` is called with
  // Bulk's lock held, and the others without it.
  struct Listener {
    void* user = nullptr;
    void (*failed)(void* user, Status cause) = nullptr;
    // The worker's transfers 1 to `through` have arrived whole.
    void (*completed)(void* user, std::uint64_t through) = nullptr;
    // Bytes are about to be written into the program's memory.
    void (*writes)(void* user) = nullptr;
    // More connections should be opened: see wanted().
    void (*wants_more)(void* user) = nullptr;
  };

  // What the worker supports: Feature::kPackedChunks, kSpreadCopies.
  struct Known {
    bool packed_chunks = false;
    bool spread_copies = false;
  };
  // With `bounds`, starts with one connection, which others may join. It then measures how many
  // connections help in each direction, and uses those. Without `bounds`, uses all connections.
  Bulk(std::vector<transport::Connection*> connections, Listener listener, Known known,
       std::optional<ConnectionCount::Bounds> bounds = {});
  ~Bulk();  // After join().
  Bulk(const Bulk&) = delete;
  Bulk& operator=(const Bulk&) = delete;

  Status start();
  // Wakes all waiting threads, because nothing moves any more. Shuts down the connections that
  // joined. The owner of the others shuts those down.
  void end() noexcept;
  void join() noexcept;

  // The number of connections that Bulk wants, and the number that it has.
  unsigned wanted() const noexcept;
  unsigned open() const noexcept;
  // The number of connections that share the bytes to the device, and from it: now, and at most so
  // far.
  struct Used {
    unsigned now = 0;
    unsigned most = 0;
  };
  Used used() const noexcept;
  Used used_from_device() const noexcept;
  // Adds a wanted connection that the worker already reads. `their_cores`: the worker's cores. A
  // useless connection is kept as well, because the worker ends the session when one of its
  // connections ends.
  void add(std::unique_ptr<transport::Connection> connection, unsigned their_cores);
  // No further connection can be opened now. One thread at a time calls add() and cannot_add(). It
  // must have ended before join().
  void cannot_add();

  // Slots that only the oldest transfer may take, and slots that only transfers in turn may take.
  static constexpr std::size_t kReservedSlots = 8;
  static constexpr std::size_t kTurnSlots = 4;
  static_assert(kTurnSlots >= limits::kChunksPerReceipt && kReservedSlots > kTurnSlots);

  // Returns the window's memory to the system if nothing is under way and nothing has begun since
  // the last call. Call it from time to time.
  void trim() noexcept;

  // Returns a new transfer's number, which is never 0 and never reused.
  std::uint64_t mint() noexcept { return last_transfer_.fetch_add(1) + 1; }

  // A line of transfers with bytes that are needed in the order in which they are opened: those of
  // one stream. Two streams in one line cost fairness and nothing more.
  using Line = std::pair<std::uint64_t, std::uint64_t>;

  // Opens a transfer to the worker, and returns its number. Nothing is sent yet. `source` is not
  // empty. Without a line the transfer takes turns with all others.
  std::uint64_t open(ByteView source, std::optional<Line> line = {});
  // As open(), for a copy that takes its turn in a stream. It is sent when the worker asks for it
  // (wanted()), and its source is not read earlier.
  std::uint64_t open_in_turn(ByteView source, std::optional<Line> line = {});
  // Drops a transfer because its record was not appended.
  void forget(std::uint64_t transfer);
  // Returns when the source may be reused: its end is copied, and all earlier bytes are sent. The
  // copied part is at most kTransferWindowBytes. Returns false if the session has ended.
  bool send(std::uint64_t transfer);
  // Returns at once. The source must stay untouched until the call that names the transfer is
  // complete.
  bool send_later(std::uint64_t transfer);

  // Offers a transfer: `payload` is kept, and sent if the worker asks for it. Returns 0 if that
  // exceeds kOfferedBytesMax. The payload must then be sent or asked about.
  static constexpr std::size_t kOfferedBytesMax = std::size_t{64} << 20;
  std::uint64_t offer(std::shared_ptr<const Bytes> payload);
  // The worker asks for a transfer that was offered or that takes its turn. The transfer is read
  // once the worker's transfers 1 to `watermark` have arrived whole. kProtocol: it cannot be asked
  // for.
  Status wanted(std::uint64_t transfer, std::uint64_t watermark);
  // Call it before acting on anything that the worker sent. It orders that action after every read
  // of a source that the worker may know of. A program that learns that its stream has passed a
  // copy may overwrite the source. Nothing else in this process orders our threads' reads before
  // that.
  void after_reads() const noexcept { (void)pieces_read_.load(std::memory_order_acquire); }

  // Returns whether some of `memory` must still be read for a transfer.
  bool reads(ByteView memory) const noexcept;
  // Waits until none of `memory` must be read any more, or the session ends.
  void await_read(ByteView memory) noexcept;
  // Waits until the sources of the transfers up to number `last` are read, or the session ends.
  // Offered transfers do not count. Transfers that other threads begin meanwhile do not delay it.
  void await_sources_read(std::uint64_t last) noexcept;
  // As above, for `at_most`. Returns whether they are read, or the session has ended.
  bool await_sources_read(std::uint64_t last, std::chrono::milliseconds at_most) noexcept;
  std::uint64_t last_begun() const noexcept { return last_transfer_.load(); }

  // Announces the bytes of `transfer`, which go to their places in `destination`. Call it before
  // the record is appended. `unattended`: no thread waits for the bytes (see outstanding()).
  // Returns the number of connections that may carry them, for the record. 0: only the first one.
  unsigned expect(std::uint64_t transfer, const HostBox& destination, bool unattended);
  // Takes all bytes of `transfer` from the log. `number` is the transfer's completion. The bytes
  // are written now, or kept until the completions before it have arrived on other threads. Returns
  // false if too many bytes are kept already. The caller then waits with await_completion(). One
  // thread at a time. kProtocol: no such transfer, another size, or a completion that comes twice.
  Result<bool> take_whole(std::uint64_t transfer, std::uint64_t number, ByteView bytes);
  // The bound of the bytes that are kept in this way, and the extra cost of each such transfer.
  static constexpr std::size_t kKeptBytesMax = std::size_t{16} << 20;
  static constexpr std::size_t kKeptBytesEach = 128;
  // Waits until a completion beyond `behind` has arrived, for `at_most`. Returns the last
  // completion that has arrived, or nullopt when the session has ended.
  std::optional<std::uint64_t> await_completion(std::uint64_t behind,
                                                std::chrono::milliseconds at_most);
  // Nothing is written to the destination after this call. Returns true if the transfer had not
  // arrived whole.
  bool cancel(std::uint64_t transfer);
  // Returns whether an unattended transfer has not arrived yet.
  bool outstanding() const noexcept { return unattended_.load(std::memory_order_acquire) != 0; }
  // Returns whether an unattended transfer that has not arrived yet goes to some of `memory`.
  bool outstanding(ByteView memory) const noexcept;

 private:
  struct Chunk {
    std::size_t slot = 0;
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };
  // Bytes [0, head_end) are sent from the source itself. Later bytes are copied into slots.
  struct Outgoing {
    std::uint64_t transfer = 0;
    Line line;
    ByteView source;
    bool later = false;                    // The caller does not wait. All of it is head.
    std::uint64_t after = 0;               // Waits for completions 1 to this one.
    bool on_demand = false;                // Waits until the worker asks for it.
    bool in_turn = false;                  // The worker asks when a stream reaches it.
    std::shared_ptr<const Bytes> offered;  // Backs `source` of an offered transfer.
    bool over = false;                     // The worker abandoned it.
    bool dropped = false;                  // No longer in outgoing_.
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
  };
  using InLine = std::deque<std::shared_ptr<Outgoing>>;
  struct Incoming {
    HostBox destination;
    std::uint64_t total = 0;
    bool unattended = false;
    bool counted = false;       // Counted by count_out_.
    std::uint64_t claimed = 0;  // Bytes that have come or are being received.
    std::uint64_t received = 0;
    std::uint64_t watermark = 0;
    int writers = 0;
  };
  struct Channel {
    Channel(Bulk* of, transport::Connection* over, bool packs, std::size_t number)
        : bulk(of), connection(over), index(number), packer(packs) {}
    Bulk* const bulk;
    transport::Connection* const connection;
    const std::size_t index;
    std::unique_ptr<transport::Connection> owned;  // Of a connection that joined.
    protocol::ChunkPacker packer;                  // For the sender only, as the next.
    protocol::ChunksToSend chunks;
    Thread sender;
    Thread receiver;
  };

  // bulk_send.cc
  std::byte* slot_start(std::size_t slot) const noexcept;
  bool has_slot_for(const Outgoing& out) const noexcept;
  bool may_copy(const Outgoing& out) const noexcept;
  bool may_send(const Outgoing& out) const noexcept;
  bool is_read(ByteView memory) const noexcept;
  bool still_reads(ByteView memory) const noexcept;
  bool sources_are_read(std::uint64_t last) const noexcept;
  std::uint64_t add(Outgoing out, std::optional<Line> line);
  static void begin_later(Outgoing& out);
  static std::size_t chunk_bytes(const Outgoing& out, std::uint64_t offset);
  Chunk take_chunk(const Outgoing& out, std::uint64_t offset);
  void begin_read(Outgoing& out, ByteView piece);
  void end_read(Outgoing& out, ByteView piece);
  void copy_next(std::unique_lock<std::mutex>& lock, Outgoing& out);
  std::shared_ptr<Outgoing> first_to_send(InLine& line);
  std::shared_ptr<Outgoing> next_to_send();
  Status send_receipts(std::unique_lock<std::mutex>& lock, transport::Connection& connection);
  // A chunk that a sender has taken, to send several together.
  struct Taken {
    std::shared_ptr<Outgoing> out;  // Empty: nothing was taken.
    Chunk chunk;
    ByteView payload;
    bool in_place = false;  // `payload` is the program's memory.
  };
  Taken take_next(const protocol::ChunksToSend& beside);
  void has_gone(const Taken& taken);
  Status send_next(std::unique_lock<std::mutex>& lock, Channel& channel);
  void run_sender(Channel& channel);
  void free_slot(std::size_t slot);
  Status retire(const protocol::BulkHeader& header);
  void abandon(std::uint64_t transfer);
  void drop(std::map<std::uint64_t, std::shared_ptr<Outgoing>>::iterator at);

  // bulk_connections.cc: how many connections take part. With the lock held, except the first and
  // the last.
  Status start_channel(Channel& channel);
  bool in_use(const Channel& channel) const noexcept;
  unsigned most_wanted() const noexcept;
  void note_sent(const Outgoing& out, std::uint64_t bytes);
  void note_retired(const Outgoing& out, std::uint64_t bytes);
  unsigned note_expected(Incoming& in);
  void note_received(const Incoming& in, std::uint64_t bytes);
  void note_lack();
  void not_opened(ConnectionCount::Time now);
  void note_counts();
  void ask_for_more();

  // bulk_receive.cc. A receiver's buffers, reused for every chunk.
  struct Scratch {
    Bytes packed;
    // A chunk on its way to a destination with gaps, or where that is faster.
    Bytes staged;
  };
  void run_receiver(Channel& channel);
  Status receive_frame(transport::Connection& connection, protocol::BulkHeads& heads,
                       Scratch& scratch);
  Status await_turn(std::uint64_t behind);
  Status receive_chunk(transport::Connection& connection, const protocol::BulkHeader& header,
                       const protocol::ChunkOnWire& chunk, Scratch& scratch);
  void note_receipt(const protocol::BulkHeader& receipt);
  Status abandoned(const protocol::BulkHeader& header);
  Status complete(std::uint64_t watermark);
  Status write_whole(std::uint64_t transfer, ByteView bytes);
  Status go_through();

  const Listener listener_;
  const Known known_;
  const bool in_memory_;  // Bytes pass through memory that both ends map.
  std::byte* window_ = nullptr;
  std::atomic<std::uint64_t> last_transfer_{0};
  std::atomic<std::size_t> unattended_{0};

  mutable std::mutex mutex_;                        // Guards all below.
  std::vector<std::unique_ptr<Channel>> channels_;  // Grows. Each element keeps its address.
  std::optional<ConnectionCount> count_;            // To the device. Empty: all are in use.
  std::optional<ConnectionCount> count_out_;        // From the device. Empty: all are in use.
  unsigned open_ = 0;
  unsigned used_ = 0;  // The first so many channels are in use.
  unsigned asked_for_ = 0;
  std::atomic<bool> lacks_{false};  // More are wanted than were asked for.
  unsigned sends_ = 0;
  unsigned receives_ = 0;
  bool may_join_ = false;            // More connections may join.
  std::condition_variable to_send_;  // For senders that are in use.
  std::condition_variable unused_;   // For senders that are not.
  std::condition_variable room_;
  std::condition_variable written_;
  std::condition_variable read_;
  bool ended_ = false;
  std::vector<std::size_t> free_slots_;
  bool window_used_ = false;             // The window has memory.
  std::uint64_t begun_before_trim_ = 0;  // The last transfer at the last trim().
  // Slots that a send() is reading. If a receipt comes before that send() returns, the slot is
  // freed afterwards.
  struct Sending {
    std::size_t slot;
    bool retired;
  };
  std::vector<Sending> sending_;
  std::atomic<std::uint64_t> pieces_read_{0};
  // A piece of a source that is being copied or sent.
  struct Reading {
    std::uint64_t transfer;
    ByteView piece;
  };
  std::vector<Reading> reading_;
  std::map<std::uint64_t, std::shared_ptr<Outgoing>> outgoing_;
  std::size_t offered_bytes_ = 0;
  std::map<Line, InLine> lines_;  // Transfers that may go once their bytes are there.
  Line last_served_;              // The line that had the last turn.
  std::map<std::uint64_t, Incoming> incoming_;
  protocol::Receipts receipts_{kChunksPerReceipt};
  std::set<std::uint64_t> early_completions_;
  std::uint64_t completed_through_ = 0;
  struct Kept {
    std::uint64_t transfer = 0;
    Bytes bytes;
  };
  std::map<std::uint64_t, Kept> kept_;  // By the numbers of their completions.
  std::size_t kept_bytes_ = 0;
  std::condition_variable completed_;
};

}  // namespace gpurun::client
