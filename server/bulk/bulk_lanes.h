// BulkLanes: the bulk connections of a session, with a sender and a receiver thread for each, and
// the queue of what they send. A connection that joined later gets its sender once a copy is to use
// it.
//
// Bytes to the device go to in(), and bytes from it come from out(). pulls() reads bytes to the
// device by itself, and writes() writes bytes from it. The first connection's sender does those
// writes, in the order of what it sends. A receiver with receipts to send sends them itself if no
// other thread is sending. The thread that learns that the device has
// written a small copy sends its bytes. The executor sends the bytes of consecutive small copies
// together (docs/adr/0026).
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
#include "protocol/bulk/chunk_wire.h"
#include "protocol/bulk/receipts.h"
#include "protocol/limits.h"
#include "protocol/log/frame.h"
#include "server/bulk/bulk_in.h"
#include "server/bulk/bulk_out.h"
#include "server/bulk/bulk_pulls.h"
#include "server/bulk/bulk_writes.h"
#include "server/bulk/staging.h"
#include "transport/transport.h"

namespace gpurun::protocol {
class BulkHeads;
}

namespace gpurun::server {

class BulkLanes {
 public:
  // The notices of BulkLanes, sent without a lock held, from its own threads and from calling
  // threads.
  struct Listener {
    void* user = nullptr;
    // A held call may continue. Not called after stop().
    void (*changed)(void* user) = nullptr;
    // As `changed`, from a connection's thread that has time to continue the call itself.
    void (*time)(void* user) = nullptr;
    // All bytes of a small copy: the log may carry them, with its next items. False: the log has
    // enough to carry. nullptr: the client does not support this.
    bool (*carry)(void* user, const protocol::BulkHeader& header, ByteView bytes) = nullptr;
    // A connection died, or the client broke the contract. May be called more than once.
    void (*failed)(void* user, const Status& cause) = nullptr;
  };

  // Borrows the connections. `packs`: the client supports packed chunks (Feature::kPackedChunks).
  // `spreads`: it takes the chunks of a copy over several connections (Feature::kSpreadCopies).
  // `remote`: the client's memory, of the first connection. nullptr: nothing is pulled. `written`:
  // the same for results. It needs `spreads`. nullptr: nothing is written. `direct`: as BulkPulls'.
  // All are borrowed.
  BulkLanes(const std::vector<transport::Connection*>& connections, bool packs, bool spreads,
            transport::RemoteMemory* remote = nullptr, transport::RemoteMemory* written = nullptr,
            DirectMemory* direct = nullptr);
  ~BulkLanes();  // After stop(), once the driver does not touch staging memory any more.
  BulkLanes(const BulkLanes&) = delete;
  BulkLanes& operator=(const BulkLanes&) = delete;

  // kResourceExhausted: no memory or no threads.
  Status start(Listener listener);
  // Adds a connection while the others work. `begin` sends the first message on it. After start().
  // False: stopped already, there are limits::kConnectionsMax, `begin` failed, or there is no
  // thread. The connection has then been closed. Any thread.
  using Begin = std::function<Status(transport::Connection&)>;
  bool add(std::unique_ptr<transport::Connection> connection, const Begin& begin);
  // The number of connections that bytes for the client may use now, from 1 to `wished`. Any
  // thread.
  unsigned lanes_for(std::uint64_t wished);
  // Shuts the connections down and waits for the threads. A second call does no harm.
  void stop();

  // During the life of this object its thread gathers the bytes of small copies. They go when there
  // are enough, at send_gathered(), and when the object ends. One object for a thread at a time.
  // `lanes` may be nullptr.
  class Gathering {
   public:
    explicit Gathering(BulkLanes* lanes) noexcept;
    ~Gathering();
    Gathering(const Gathering&) = delete;
    Gathering& operator=(const Gathering&) = delete;

   private:
    BulkLanes* const lanes_;
  };
  // Sends the bytes that the calling thread has gathered, because another item follows. Does not
  // wait.
  void send_gathered();
  // Whether the log may carry a copy of that size.
  bool may_carry(std::uint64_t bytes) const noexcept;

  BulkIn& in() noexcept { return in_; }
  BulkOut& out() noexcept { return out_; }
  BulkPulls& pulls() noexcept { return pulls_; }
  BulkWrites& writes() noexcept { return writes_; }
  Staging& staging_in() noexcept { return staging_in_; }
  Staging& staging_out() noexcept { return staging_out_; }

 private:
  struct Said {
    protocol::FrameKind kind = protocol::FrameKind::kHeartbeat;
    protocol::BulkHeader header;
    ByteView bytes;
    unsigned lanes = 1;  // Any of the first `lanes` connections may send it. BulkOut::kWritten.
    bool is_written() const noexcept {
      return kind == protocol::FrameKind::kChunk && lanes == BulkOut::kWritten;
    }
  };
  struct Lane {
    Lane(transport::Connection* over, std::size_t number, bool packs)
        : connection(over), index(number), packer(packs) {}
    transport::Connection* const connection;
    const std::size_t index;
    std::unique_ptr<transport::Connection> owned;  // For a connection that was added.
    std::mutex sending;  // Before mutex_. Never held when the executor is notified. Guards all
                         // below.
    protocol::ChunkPacker packer;
    protocol::ChunksToSend chunks;
    std::vector<Said> begun;  // The items in `chunks` that are not sent completely.
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
  Status send_word(const Said& said);
  Status write(const Said& said);
  Status send_unwritten(const Said& said);
  void await_writes();
  void end_writes(const BulkWrites::Chunks& written, const Said* before);
  void note_receipt(const protocol::BulkHeader& receipt);
  bool may_say_next(const Lane& lane) const;
  bool has_to_say(const Lane& lane) const;
  bool next_is_apart() const;
  bool next_to_say(const Lane& lane, Said* said);
  void run_sender(Lane& lane);
  void run_receiver(Lane& lane);
  Status give_receipts(Lane& lane);
  static Status send_receipts(Lane& lane, const protocol::Receipts::Batch& receipts);
  Status receive_frame(transport::Connection& connection, protocol::BulkHeads& heads,
                       Bytes& scratch);
  void changed();
  void time();

  const bool packs_, spreads_;
  std::deque<Lane> lanes_;  // After start() it grows under joining_, and each lane keeps its
                            // address.
  Lane* first_ = nullptr;   // Constant.
  Staging staging_in_;
  Staging staging_out_;
  BulkIn in_;
  BulkOut out_;
  BulkPulls pulls_;
  BulkWrites writes_;  // For the first connection's sender, with its `sending`.
  bool room_ = false;  // Guarded by the same: a copy that waits may continue.
  Listener listener_;
  std::atomic<bool> stopping_{false};
  std::atomic<unsigned> senders_{0};  // The number of lanes that have a sender, from the first on.

  std::mutex mutex_;  // Guards all below.
  std::condition_variable due_;
  std::deque<Said> said_;
  std::size_t kept_ = 0;  // The number of last items that wait for more. No sender starts for them.
  protocol::Receipts receipts_{limits::kChunksPerReceipt};

  std::mutex joining_;  // Before all others. Guards lanes_ and what follows.
  bool started_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace gpurun::server
