// BulkPulls: the bytes of copies to the device that this end reads out of the client's memory
// (docs/adr/0048).
//
// A copy is opened when its call may be issued. Its bytes are read into slots in their order, and
// the executor takes the slots as from BulkIn. The slots are a staging memory of their own, because
// the client has credits for all slots of the other one. When all bytes have been read, the client
// gets one receipt. A read that fails fails all copies that are not read yet. Their calls then ask
// the client for the bytes, and BulkIn takes them.
//
// Order. A source that earlier work may still write is read once the stream has reached the copy
// (reached()). Others are read ahead. A copy that its stream has not reached may hold its slots for
// as long as earlier work takes, and that work may need another copy. So it leaves kTurnSlots free.
// A copy that its stream has reached always gets rid of its slots.
//
// GPUDirect (docs/adr/0055). A copy that names its place in device memory is read there once its
// stream has reached it, without a slot. The thread first gives that memory to the device, and
// flushes behind the last read. Until then the copy's call is held, so no later work of the stream
// begins. What is refused on the way takes slots.
//
// A read without an end may still write its slot. Such a slot is never used again. From device
// memory the device is taken away (DirectMemory::abandon()) before its bytes are written again.
//
// Any thread, except for the functions that a comment reserves for the executor. The client's
// values are never used as an address of this process.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "protocol/log/frame.h"
#include "protocol/log/record.h"
#include "server/bulk/bulk_in.h"
#include "server/bulk/staging.h"
#include "server/driver/direct_memory.h"
#include "transport/remote_memory.h"

namespace gpurun::server {

class BulkPulls {
 public:
  static constexpr std::size_t kStagingBytes = std::size_t{32} << 20;
  static constexpr std::size_t kTurnSlots = 8;
  // One read into device memory. Larger ones would take a copy's turn from the others.
  static constexpr std::size_t kDirectReadBytes = std::size_t{1} << 20;
  // A device reports each read within the time of its retries (transport/rdma/transitions.h).
  static constexpr std::chrono::milliseconds kReadDeadline{3000};
  // For the ends of reads after that.
  static constexpr std::chrono::milliseconds kEndDeadline{1000};

  // The notices of BulkPulls, sent without a lock held, from its own thread and from calling ones.
  struct Listener {
    void* user = nullptr;
    // A call that waits for bytes may continue. Must not block.
    void (*changed)(void* user) = nullptr;
    // As `changed`, from its own thread, which has time to continue the call itself.
    void (*time)(void* user) = nullptr;
    // A kChunkReceipt or kChunkAbandoned must be sent.
    void (*say)(void* user, protocol::FrameKind kind, const protocol::BulkHeader& header) = nullptr;
  };
  using Chunk = BulkIn::Chunk;

  // Borrows both, which end later. `remote` nullptr: nothing can be read. `direct` nullptr: nothing
  // is read into device memory.
  BulkPulls(transport::RemoteMemory* remote, Listener listener, DirectMemory* direct = nullptr);
  ~BulkPulls();
  BulkPulls(const BulkPulls&) = delete;
  BulkPulls& operator=(const BulkPulls&) = delete;
  // No notice comes afterwards. A second call does no harm.
  void stop();

  // Waits until the slots are enrolled, or never will be. Otherwise the first copy starts that, and
  // its reads wait. For tests.
  void begin();

  // The slots, for the executor, which registers them with the driver.
  Staging& staging() noexcept { return staging_; }
  // nullptr: nothing can be read into device memory.
  DirectMemory* direct() noexcept { return remote_ == nullptr ? nullptr : direct_; }
  // False: open() would fail.
  bool may_open() const noexcept { return remote_ != nullptr && remote_->works(); }
  // Why the slots could not be enrolled, for people. Empty: they were, or no copy has asked for it.
  // Any thread.
  std::string why_refused() const;

  // For the executor.

  // Where a copy goes in device memory, and the driver's context of its call.
  struct Target {
    std::uint64_t address = 0;
    void* context = nullptr;
  };
  // The call `sequence` names `transfer`, which is read from `source`. `into`: all of it is memory
  // that DirectMemory::reaches(). False: it cannot be read, or the client uses the number twice.
  bool open(std::uint64_t transfer, std::uint64_t sequence, const protocol::PulledSource& source,
            const std::optional<Target>& into = std::nullopt);
  // As BulkIn's.
  std::optional<Chunk> next(std::uint64_t transfer);
  const std::byte* at_hand(std::uint64_t transfer) const;
  bool all_given(std::uint64_t transfer) const;
  // Its bytes will not come here. No read of it is under way, and the transfer has been forgotten.
  bool has_failed(std::uint64_t transfer);
  // The call has ended. If bytes were not read, the client learns that none of them is needed.
  void end_call(std::uint64_t transfer, std::uint64_t sequence);

  // The stream of the copy has done all earlier work, with this CUresult. After a failure the
  // driver gets the copy, which then fails as it should. Any thread.
  void reached(std::uint64_t transfer, int result = 0);
  // The device has the chunk. Any thread.
  void retired(std::uint64_t transfer, const Chunk& chunk);

  // The number of remembered transfers, and of slots that nothing may use again, for tests.
  std::size_t remembered() const;
  std::size_t lost_slots() const;

 private:
  struct Slot {
    Chunk chunk;
    std::size_t asked = 0;    // Bytes of reads that have begun.
    std::size_t reading = 0;  // Reads under way.
    bool lost = false;        // A read of it has no end.
  };
  enum class Road : std::uint8_t {
    kSlots,
    kPreparing,  // Into device memory, which the device does not have yet.
    kDirect,
    kFlushing,  // All bytes have been read into device memory.
    kThere
  };
  struct Transfer {
    std::uint64_t call = 0;
    protocol::PulledSource source;
    Road road = Road::kSlots;
    Target into;
    bool holds = false;  // DirectMemory keeps `into` for it.
    bool reached = false;
    bool failed = false;
    bool closed = false;       // Its call has ended.
    std::uint64_t placed = 0;  // Bytes that have a slot, or had one, or that are read directly.
    std::uint64_t given = 0;   // Bytes returned by next(), or all once they are in device memory.
    std::size_t reading = 0;   // Reads under way, of all slots.
    bool read = false;         // All bytes are there, and the client knows.
    std::deque<Slot> slots;    // Not given, in their order.
  };
  using Transfers = std::map<std::uint64_t, Transfer>;
  struct Reading {
    std::uint64_t transfer = 0;
    std::uint64_t offset = 0;  // Of the slot's chunk, or of the read.
    bool direct = false;
    Deadline deadline;
  };
  // What is to be sent once the lock is released.
  struct Notices {
    bool arrived = false;
    std::deque<std::pair<protocol::FrameKind, protocol::BulkHeader>> says;
  };

  // With the lock held.
  bool start();
  void enroll_slots(std::unique_lock<std::mutex>& lock);
  bool wants_more(const Transfer& transfer) const;
  Slot* slot_to_read(Transfer& transfer);
  transport::RemoteMemory::Began begin_one(std::uint64_t number, Transfer& transfer);
  transport::RemoteMemory::Began begin_direct(std::uint64_t number, Transfer& transfer);
  Transfers::iterator next_to_read();
  void begin_reads(Notices& notices);
  void fail_all(Notices& notices);
  void settle(Transfers::iterator at, Notices& notices);
  void end_read(std::uint64_t id, bool right, Notices& notices);
  void heed_deadlines(Notices& notices);
  // Releases the lock meanwhile.
  void prepare_next(std::unique_lock<std::mutex>& lock, Notices& notices);
  void flush_next(std::unique_lock<std::mutex>& lock, Notices& notices);
  void drop_slots(Transfer& transfer);
  void let_go(Transfer& transfer);

  void run();
  enum class Thread : std::uint8_t { kPuller, kCaller };
  void send(const Notices& notices, Thread from) const;

  transport::RemoteMemory* const remote_;
  DirectMemory* const direct_;
  const Listener listener_;
  Staging staging_;

  mutable std::mutex mutex_;  // Guards all below. Held over the post of a read, never over a wait.
  std::condition_variable work_;
  Transfers transfers_;
  std::map<std::uint64_t, Reading> readings_;  // The reads under way, by their ids.
  std::deque<std::uint64_t> to_prepare_;       // Transfers, for the thread. They may have ended.
  std::deque<std::uint64_t> to_flush_;
  std::uint64_t last_id_ = 0;
  std::uint64_t last_served_ = 0;  // The transfer of the last read. Transfers take turns.
  std::size_t lost_slots_ = 0;
  std::optional<Deadline> ends_by_;  // Since the carrier was given up: when reads count as lost.
  bool postponed_ = false;           // A read could not begin. Only the thread tries again.
  bool started_ = false;
  bool enrolled_ = false;  // Reads may begin.
  bool unable_ = false;    // No memory could be enrolled, or there is no thread.
  std::string why_unable_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace gpurun::server
