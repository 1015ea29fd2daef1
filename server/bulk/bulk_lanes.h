// BulkLanes: the bulk connections of a session: a sender and a receiver thread for each (one that
// has joined has a sender once a copy is to go over it), and what is to be sent. Bytes to the
// device go to in(), bytes from it come from out(). A receiver that has receipts to give and finds
// nobody sending gives them by itself, and so does with a small copy's bytes whoever hears that the
// device has written them; the executor with those of copies that follow one another together
// (docs/adr/0026).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "protocol/chunk_wire.h"
#include "protocol/frame.h"
#include "protocol/limits.h"
#include "protocol/receipts.h"
#include "server/bulk/bulk_in.h"
#include "server/bulk/bulk_out.h"
#include "server/bulk/staging.h"
#include "transport/transport.h"

namespace gpurun::protocol {
class BulkHeads;
}

namespace gpurun::server {

class BulkLanes {
 public:
  // What BulkLanes tells, without a lock held, from threads of its own and of those that call it.
  struct Listener {
    void* user = nullptr;
    // A held call may go on. Not after stop().
    void (*changed)(void* user) = nullptr;
    // Likewise, from a connection's thread that has time to see to it by itself.
    void (*time)(void* user) = nullptr;
    // All bytes of a small copy: the log may carry them, with what is said on it next. False: it
    // has enough to carry. nullptr: the client knows of no such thing.
    bool (*carry)(void* user, const protocol::BulkHeader& header, ByteView bytes) = nullptr;
    // A connection died, or the client broke the contract. More than once.
    void (*failed)(void* user, const Status& cause) = nullptr;
  };

  // Borrows the connections. `packs`: the client knows packed chunks (Feature::kPackedChunks);
  // `spreads`: it takes chunks of a copy over several connections (Feature::kSpreadCopies).
  BulkLanes(const std::vector<transport::Connection*>& connections, bool packs, bool spreads);
  ~BulkLanes();  // After stop(), and when nothing of the driver's touches staging memory any more.
  BulkLanes(const BulkLanes&) = delete;
  BulkLanes& operator=(const BulkLanes&) = delete;

  // kResourceExhausted: no memory or no threads.
  Status start(Listener listener);
  // One more connection while the others are at work. `begin` says the first words on it. After
  // start(). False: stopped already, there are limits::kConnectionsMax, `begin` failed, or no
  // thread is to be had; the connection has been closed. Any thread.
  using Begin = std::function<Status(transport::Connection&)>;
  bool add(std::unique_ptr<transport::Connection> connection, const Begin& begin);
  // Over how many connections bytes for the client may go now where it wishes for so many: 1 to
  // `wished`. Any thread.
  unsigned lanes_for(std::uint64_t wished);
  // Shuts the connections down and waits for the threads. Twice does no harm.
  void stop();

  // While this lives its thread keeps the bytes of small copies together, until there are enough of
  // them, it says so, or this ends. One for a thread at a time; `lanes` may be nullptr.
  class Gathering {
   public:
    explicit Gathering(BulkLanes* lanes) noexcept;
    ~Gathering();
    Gathering(const Gathering&) = delete;
    Gathering& operator=(const Gathering&) = delete;

   private:
    BulkLanes* const lanes_;
  };
  // What the calling thread has kept together goes now: something else comes behind it. Does not
  // wait.
  void send_gathered();
  // The log may carry a copy of so many bytes.
  bool may_carry(std::uint64_t bytes) const noexcept;

  BulkIn& in() noexcept { return in_; }
  BulkOut& out() noexcept { return out_; }
  Staging& staging_in() noexcept { return staging_in_; }
  Staging& staging_out() noexcept { return staging_out_; }

 private:
  struct Said {
    protocol::FrameKind kind = protocol::FrameKind::kHeartbeat;
    protocol::BulkHeader header;
    ByteView bytes;
    unsigned lanes = 1;  // The first so many may send it.
  };
  struct Lane {
    Lane(transport::Connection* over, std::size_t number, bool packs)
        : connection(over), index(number), packer(packs) {}
    transport::Connection* const connection;
    const std::size_t index;
    std::unique_ptr<transport::Connection> owned;  // Of one that was added.
    std::mutex sending;  // Before mutex_; never held when the executor is told. Guards all below.
    protocol::ChunkPacker packer;
    protocol::ChunksToSend chunks;
    std::vector<Said> begun;  // Those of `chunks`, of which something is left.
    bool has_rest = false;    // Set and cleared with both locks.
  };

  void say(const Said& said);
  bool goes_with_the_log(const Said& said);
  bool keeps_together(const Said& said);
  bool take_chunk(const Lane& lane, std::uint64_t total_max, Said* said);
  void begin_chunks(Lane& lane, std::uint64_t total_max);
  bool begun_has_gone(Lane& lane);
  void send_small();
  Status send_next(Lane& lane);
  void note_receipt(const protocol::BulkHeader& receipt);
  bool may_say_next(const Lane& lane) const;
  bool has_to_say(const Lane& lane) const;
  bool next_is_word() const;
  bool next_to_say(const Lane& lane, Said* said);
  void run_sender(Lane& lane);
  void run_receiver(Lane& lane);
  Status give_receipts(Lane& lane);
  static Status send_receipts(Lane& lane, const protocol::Receipts::Batch& receipts);
  Status receive_frame(transport::Connection& connection, protocol::BulkHeads& heads,
                       Bytes& scratch);
  void changed();

  const bool packs_, spreads_;
  std::deque<Lane> lanes_;  // From start() on it grows under joining_, and each stays where it is.
  Lane* first_ = nullptr;   // Fixed.
  Staging staging_in_;
  Staging staging_out_;
  BulkIn in_;
  BulkOut out_;
  Listener listener_;
  std::atomic<bool> stopping_{false};
  std::atomic<unsigned> senders_{0};  // The first so many lanes have one.

  std::mutex mutex_;  // Guards all below.
  std::condition_variable due_;
  std::deque<Said> said_;
  std::size_t kept_ = 0;  // So many of the last wait for what follows: no sender begins for them.
  protocol::Receipts receipts_{limits::kChunksPerReceipt};

  std::mutex joining_;  // Before all others. Guards lanes_, and the next.
  bool started_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace gpurun::server
