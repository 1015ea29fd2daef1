// Bulk: the payload bytes of copies and images, beside the command log. Chunks of
// limits::kBulkChunkBytes. Streams take turns, so that a large copy of one does not hold up a small
// one of another; transfers of one stream go in their order, as the worker needs them: what came
// before its turn would have left the worker's caches by then.
//
// A chunk that is sent has a slot of the window until the worker's receipt says that it has
// retired: so what is under way is bounded by limits::kBulkWindowBytes, of which one transfer takes
// at most kTransferWindowBytes. What the program leaves alone until it is sent goes out from where
// it lies; only what it may use again before then is copied into its slot. What is received goes
// straight into the program's memory (docs/adr/0026), but where that has gaps.
//
// Any thread may call everything. Order: open() the transfer, append the record that names it, then
// send. Transfers are opened in the order of their records (Session sees to it): the oldest one
// that is not filled may always go on, because a window full of later ones could only wait for it.
// One that takes its turn in a stream stands outside this order: the worker asks for it when the
// stream has come to it, so that its slots retire by themselves, and some are kept for such ones.
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
#include "client/connection_count.h"
#include "client/host_box.h"
#include "client/thread.h"
#include "protocol/chunk_packer.h"
#include "protocol/chunk_wire.h"
#include "protocol/frame.h"
#include "protocol/receipts.h"
#include "transport/transport.h"

namespace gpurun::protocol {
class BulkHeads;
}

namespace gpurun::client {

class Bulk {
 public:
  static constexpr std::size_t kTransferWindowBytes = std::size_t{16} << 20;
  // Of a larger one that the program may use again at once, so much is copied where sending is
  // itself a copy: the rest is sent meanwhile, from where it lies.
  static constexpr std::size_t kCopiedBesideMemoryBytes = std::size_t{1} << 20;
  // Received chunks that the worker hears of together: a receipt costs both sides a thread's sleep.
  static constexpr std::size_t kChunksPerReceipt = 16;
  // Completions that arrived before an earlier one did; more is a protocol error.
  static constexpr std::size_t kEarlyCompletionsMax = 65'536;

  // What Bulk tells its session, from threads of its own and without a lock held.
  struct Listener {
    void* user = nullptr;
    void (*failed)(void* user, Status cause) = nullptr;
    // The worker's transfers 1 to `through` have arrived whole.
    void (*completed)(void* user, std::uint64_t through) = nullptr;
    // Bytes are about to be written into the program's memory.
    void (*writes)(void* user) = nullptr;
    // More connections are to be opened: wanted().
    void (*wants_more)(void* user) = nullptr;
  };

  // What the worker knows: Feature::kPackedChunks, kSpreadCopies.
  struct Known {
    bool packed_chunks = false;
    bool spread_copies = false;
  };
  // With `bounds` it begins with one connection, which others may join, and has bytes sent over as
  // many as are measured to help, either way; else over all.
  Bulk(std::vector<transport::Connection*> connections, Listener listener, Known known,
       std::optional<ConnectionCount::Bounds> bounds = {});
  ~Bulk();  // After join().
  Bulk(const Bulk&) = delete;
  Bulk& operator=(const Bulk&) = delete;

  Status start();
  // Wakes whoever waits: nothing will move any more. Connections are shut down by their owner.
  void end() noexcept;
  void join() noexcept;

  // How many connections bytes should have, and have.
  unsigned wanted() const noexcept;
  unsigned open() const noexcept;
  // That share those to the device and those from it, and the most that ever did.
  struct Used {
    unsigned now = 0;
    unsigned most = 0;
  };
  Used used() const noexcept;
  Used used_from_device() const noexcept;
  // One more of those wanted, over which the worker hears us; `their_cores`: of the worker. It is
  // kept also where it is of no use: the worker takes its end for the session's.
  void add(std::unique_ptr<transport::Connection> connection, unsigned their_cores);
  // No more is to be had now. Like add() by one thread at a time, which join() does not meet.
  void cannot_add();

  // Slots that only the oldest transfer may take, and those that only transfers in turn may.
  static constexpr std::size_t kReservedSlots = 8;
  static constexpr std::size_t kTurnSlots = 4;
  static_assert(kTurnSlots >= limits::kChunksPerReceipt && kReservedSlots > kTurnSlots);

  // Gives the window's memory back to the system where nothing is under way, nor has begun since
  // the last call. For whoever comes by now and then.
  void trim() noexcept;

  // A transfer's number, never 0, never given again.
  std::uint64_t mint() noexcept { return last_transfer_.fetch_add(1) + 1; }

  // Transfers whose bytes are needed in the order in which they are opened: those of one stream.
  // Two streams in one line cost fairness and nothing else.
  using Line = std::pair<std::uint64_t, std::uint64_t>;

  // A transfer to the worker: its number; nothing is sent yet. `source` is not empty. Without a
  // line it takes turns with all others.
  std::uint64_t open(ByteView source, std::optional<Line> line = {});
  // Likewise, of a copy that takes its turn in a stream: it is sent when the worker asks for it
  // (wanted()), and its source is not read before.
  std::uint64_t open_in_turn(ByteView source, std::optional<Line> line = {});
  // The record was not appended after all.
  void forget(std::uint64_t transfer);
  // Returns when the source may be reused: when all but the last kTransferWindowBytes have been
  // sent, and these have been copied. False: the session ended.
  bool send(std::uint64_t transfer);
  // Returns at once; the source stays untouched until the call that names the transfer is complete.
  bool send_later(std::uint64_t transfer);

  // A transfer that is only offered: `payload` is kept and sent if the worker wants it. 0: so much
  // is offered already (kOfferedBytesMax) that it has to be sent or asked about.
  static constexpr std::size_t kOfferedBytesMax = std::size_t{64} << 20;
  std::uint64_t offer(std::shared_ptr<const Bytes> payload);
  // The worker asks for a transfer that was offered or that takes its turn; it is read once the
  // worker's transfers 1 to `watermark` have arrived whole. kProtocol: it cannot be asked for.
  Status wanted(std::uint64_t transfer, std::uint64_t watermark);
  // Before something that the worker said is acted upon: comes after every read of a source that
  // the worker may have heard of. A program that hears that its stream has passed a copy may
  // overwrite the source, and nothing else in this process says that our threads have read it
  // before.
  void after_reads() const noexcept { (void)pieces_read_.load(std::memory_order_acquire); }

  // Some of `memory` has still to be read for a transfer.
  bool reads(ByteView memory) const noexcept;
  // Waits until none of it has, or the session ends.
  void await_read(ByteView memory) noexcept;
  // Waits until the sources of the transfers up to number `last` are read, or the session ends.
  // Offered transfers do not count. Transfers that other threads begin meanwhile do not delay it.
  void await_sources_read(std::uint64_t last) noexcept;
  // As above, for `at_most`. Returns whether they are read, or the session has ended.
  bool await_sources_read(std::uint64_t last, std::chrono::milliseconds at_most) noexcept;
  std::uint64_t last_begun() const noexcept { return last_transfer_.load(); }

  // Bytes of `transfer` will come and go to `destination`, in their places. Before the record is
  // appended. `unattended`: nobody waits for it (see outstanding()). Over how many connections they
  // may come, for the record: 0: the first one.
  unsigned expect(std::uint64_t transfer, const HostBox& destination, bool unattended);
  // The log has brought all bytes of `transfer`, whose completion is the one of this number. They
  // are written now, or kept and written behind the completions before it, which other threads
  // bring. False: so much is kept already that these must come first (await_completion()). One
  // thread at a time. kProtocol: no such transfer, another size, or a completion that comes twice.
  Result<bool> take_whole(std::uint64_t transfer, std::uint64_t number, ByteView bytes);
  // Bytes of such transfers that wait for others, and what each costs besides.
  static constexpr std::size_t kKeptBytesMax = std::size_t{16} << 20;
  static constexpr std::size_t kKeptBytesEach = 128;
  // Waits until a completion beyond `behind` is there, but for so long at most: the last completion
  // that is, or none when the session has ended.
  std::optional<std::uint64_t> await_completion(std::uint64_t behind,
                                                std::chrono::milliseconds at_most);
  // Nothing is written to the destination any more from now on. True: it had not arrived whole.
  bool cancel(std::uint64_t transfer);
  // An unattended transfer has not arrived yet.
  bool outstanding() const noexcept { return unattended_.load(std::memory_order_acquire) != 0; }
  // An unattended transfer that has not arrived yet goes to some of `memory`.
  bool outstanding(ByteView memory) const noexcept;

 private:
  struct Chunk {
    std::size_t slot = 0;
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };
  // Its bytes [0, head_end) are sent from the source itself; those behind are copied into slots.
  struct Outgoing {
    std::uint64_t transfer = 0;
    Line line;
    ByteView source;
    bool later = false;                    // Who called does not wait. All of it is head,
    std::uint64_t after = 0;               // once completions 1 to this one are in place.
    bool on_demand = false;                // Not before the worker asks for it,
    bool in_turn = false;                  // when a stream has come to it.
    std::shared_ptr<const Bytes> offered;  // Backs `source` of an offered one.
    bool over = false;                     // Abandoned by the worker,
    bool dropped = false;                  // or done with for another reason.
    std::uint64_t head_end = 0;
    std::uint64_t head = 0;    // Of the head, bytes that have been taken to be sent.
    std::uint64_t filled = 0;  // From head_end on: all before have been copied.
    std::uint64_t sent = 0;    // Bytes handed to a connection.
    std::uint64_t retired = 0;
    int reading = 0;           // Chunks that are read from the source just now.
    std::deque<Chunk> ready;   // Copied, to be sent when the head has been.
    std::deque<Chunk> chunks;  // Handed to a connection, not yet retired.

    bool taken() const { return head == head_end && filled == source.size(); }
    bool handed_over() const { return dropped || sent == source.size(); }
  };
  using InLine = std::deque<std::shared_ptr<Outgoing>>;
  struct Incoming {
    HostBox destination;
    std::uint64_t total = 0;
    bool unattended = false;
    bool counted = false;       // By count_out_.
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
    std::unique_ptr<transport::Connection> owned;  // Of one that joined.
    protocol::ChunkPacker packer;                  // The sender's, as the next.
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
  // Chunks that go together, each out of the lines until it has gone.
  struct Taken {
    std::shared_ptr<Outgoing> out;  // Empty: nothing was taken.
    Chunk chunk;
    ByteView payload;
    bool in_place = false;  // `payload` is the program's.
  };
  Taken take_next(const protocol::ChunksToSend& beside);
  void has_gone(const Taken& taken);
  Status send_next(std::unique_lock<std::mutex>& lock, Channel& channel);
  void run_sender(Channel& channel);
  void free_slot(std::size_t slot);
  Status retire(const protocol::BulkHeader& header);
  void abandon(std::uint64_t transfer);
  void drop(std::map<std::uint64_t, std::shared_ptr<Outgoing>>::iterator at);

  // bulk_connections.cc. How many take part; all but the first and the last with the lock held.
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

  // bulk_receive.cc. A receiver's memory, kept from chunk to chunk.
  struct Scratch {
    Bytes packed;
    // A chunk that goes from there to its place: there are gaps, or it is faster so.
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
  std::vector<std::unique_ptr<Channel>> channels_;  // Grows; each stays where it is.
  std::optional<ConnectionCount> count_;            // To the device; empty: all are in use.
  std::optional<ConnectionCount> count_out_;        // From it; likewise.
  unsigned open_ = 0;
  unsigned used_ = 0;  // The first so many channels.
  unsigned asked_for_ = 0;
  std::atomic<bool> lacks_{false};  // More are wanted than were asked for.
  unsigned sends_ = 0;
  unsigned receives_ = 0;
  bool may_join_ = false;            // More of them.
  std::condition_variable to_send_;  // Of senders that are in use.
  std::condition_variable unused_;   // Of the others.
  std::condition_variable room_;
  std::condition_variable written_;
  std::condition_variable read_;
  bool ended_ = false;
  std::vector<std::size_t> free_slots_;
  bool window_used_ = false;             // It has memory.
  std::uint64_t begun_before_trim_ = 0;  // The last transfer by then.
  // Slots that a send() reads just now. A receipt may come before it returns: the slot is free
  // then.
  struct Sending {
    std::size_t slot;
    bool retired;
  };
  std::vector<Sending> sending_;
  std::atomic<std::uint64_t> pieces_read_{0};
  // A piece of a source that is copied or sent just now.
  struct Reading {
    std::uint64_t transfer;
    ByteView piece;
  };
  std::vector<Reading> reading_;
  std::map<std::uint64_t, std::shared_ptr<Outgoing>> outgoing_;
  std::size_t offered_bytes_ = 0;
  std::map<Line, InLine> lines_;  // Of those that may go once their bytes are there.
  Line last_served_;              // The line that had its turn last.
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
