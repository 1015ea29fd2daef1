// RdmaCarrier: the carrier of a connection over RDMA, two rings with remote writers.
//
// The sender copies bytes into its own copy of the ring, and brings them to the other end's ring by
// one request, which also tells the new position (RDMA WRITE WITH IMMEDIATE). Only a completion
// makes bytes known, because no rule orders the bytes of a write in memory. Devices without such
// writes send the same messages into slots (QueuePair::writes()).
//
// A message's immediate has its meaning in two bits and a count, modulo 2^30, in the others: the
// position behind its bytes, how many bytes its sender has taken, how many receives its sender has
// posted, or the end. The second and third are credits. A sender has at most a ring of untaken
// bytes and at most one message for each receive of the other end, so no message waits in the
// fabric for a receive.
//
// The sender's copy stays until the receiver has taken the bytes. So a connection that leaves a
// failed queue pair sends the rest over its socket (transport/carrier/connection.h). Whatever the
// other end does wrong by this carrier counts as a failure of it.
//
// Reads and writes of the other end's memory (RemoteMemory) are requests of the same queue pair.
// They need no receive, and complete in one order with the messages. No more reads are under way
// than the devices serve at once, so no message waits behind a read that cannot begin. A read or a
// write that fails is a failure of the carrier.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "transport/carrier/carrier.h"
#include "transport/rdma/failure.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/remote_queue.h"
#include "transport/rdma/silence.h"
#include "transport/rdma/slots.h"
#include "transport/remote_memory.h"

namespace gpurun::transport::rdma {

class RdmaCarrier final : public carrier::Carrier, public RemoteMemory {
 public:
  // `pair` is connected.
  explicit RdmaCarrier(std::unique_ptr<QueuePair> pair);

  const char* name() const noexcept override { return name_.c_str(); }
  std::string why_failed() const override {
    return has_failed() ? failure_text(failure_.load()) : "";
  }
  int fd() const noexcept override { return pair_->channel_fd(); }

  RemoteMemory* remote_memory() noexcept override { return pair_->reads() != 0 ? this : nullptr; }

  carrier::Moved put(PartCursor& cursor) override;
  bool has_to_wake() noexcept override { return false; }  // The channel wakes the other end.
  void sleep_as_sender(std::chrono::nanoseconds span, const std::atomic<unsigned>& wanted,
                       bool for_room) noexcept override;
  bool is_full() noexcept override;
  std::uint64_t bytes_put() const noexcept override { return put_.load(std::memory_order_relaxed); }
  bool find_untaken(std::uint64_t taken, std::array<ByteView, 2>* untaken) noexcept override;
  void finish(Deadline deadline) noexcept override;

  carrier::Moved take(MutableBytes into) noexcept override;
  std::uint64_t bytes_taken() const noexcept override {
    return taken_.load(std::memory_order_relaxed);
  }
  bool skip_to(std::uint64_t put) noexcept override;
  bool has_bytes() const noexcept override;
  bool announce_sleep() noexcept override;
  bool announce_wake() noexcept override { return asleep_.exchange(false); }
  bool sleep_is_announced() const noexcept override { return asleep_.load(); }
  void await_rest() noexcept override;

  void wake_sender() noexcept override;
  void close() noexcept override;
  bool is_closed_out() const noexcept override { return closed_.load() || is_ended(); }
  bool is_closed_in() const noexcept override { return closed_.load() || is_ended(); }

  // As RemoteMemory (rdma_remote_memory.cc).
  bool works() const noexcept override { return !has_failed() && !closed_.load(); }
  Result<std::uint32_t> lend(ByteView memory) override;
  Result<std::uint32_t> lend_for_writing(MutableBytes memory) override;
  void take_back(std::uint32_t key) noexcept override;
  bool writes() const noexcept override { return pair_->writes(); }
  Status enroll(MutableBytes memory) override;
  void withdraw() noexcept override { withdraw(&enrolled_); }
  Result<std::uint32_t> enroll_device(const DeviceMemory& memory) override;
  bool withdraw_device(std::uint32_t key) noexcept override;
  std::size_t read_bytes_max() const noexcept override { return pair_->port().message_bytes_max; }
  Began begin_read(const Read& read) noexcept override;
  std::size_t await_reads(std::span<Ended> ended, Deadline deadline) noexcept override {
    return await_ended(reads_, ended, deadline);
  }
  Status enroll_source(MutableBytes memory) override;
  void withdraw_source() noexcept override { withdraw(&source_); }
  Began begin_write(const Write& write) noexcept override;
  std::size_t await_writes(std::span<Ended> ended, Deadline deadline) noexcept override {
    return await_ended(writes_, ended, deadline);
  }
  void give_up() noexcept override;

 private:
  bool is_ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  void note_failure(ibv_wc_status status) noexcept;
  bool has_failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  void withdraw(std::uint32_t* local_key) noexcept;
  std::size_t await_ended(RemoteQueue& queue, std::span<Ended> ended, Deadline deadline) noexcept;
  void sleep_for_ends(RemoteQueue& queue, std::uint64_t looks, Deadline deadline) noexcept;
  // Takes what has come, or what has become of requests. Any thread.
  void poll() noexcept;
  void poll_requests() noexcept;

  // Call these with queue_ held.
  bool may_post(std::uint64_t requests_kept, std::uint64_t receives_kept) const noexcept;
  std::size_t room() const noexcept;
  bool post(const std::byte* from, std::size_t bytes, std::size_t offset, std::uint32_t immediate,
            bool reports) noexcept;
  bool may_begin(const RemoteQueue& queue, std::size_t most) noexcept;
  void has_begun(RemoteQueue& queue, std::uint64_t id) noexcept;
  void heed_requests() noexcept;
  void heed_silence() noexcept;
  bool heed(const ibv_wc& completion) noexcept;
  bool heed_bytes(const ibv_wc& completion, std::uint32_t count) noexcept;
  bool heed_taken(std::uint32_t count) noexcept;
  bool heed_receives(std::uint32_t count) noexcept;
  bool post_receive(std::uint32_t slot) noexcept;
  void drop_slots(std::uint64_t taken) noexcept;
  void give_credits(bool now) noexcept;
  void post_end() noexcept;

  ByteView next_piece(std::uint64_t taken) noexcept;

  const std::unique_ptr<QueuePair> pair_;
  const std::string name_;
  const std::size_t window_;

  mutable std::mutex queue_;  // Never held over a wait. Guards the queue pair and the counts below.
  std::uint64_t requested_ = 0;  // Requests, of all.
  std::uint64_t completed_ = 0;  // Of these, as far as completions are reported.
  std::uint64_t posted_ = 0;     // Requests that need a receive of the other end.
  RemoteQueue reads_;
  RemoteQueue writes_;
  std::uint32_t enrolled_ = 0;  // The local key of the memory that reads fill. 0: no memory.
  std::uint32_t source_ = 0;    // The same of the memory that writes come from.
  std::uint64_t their_taken_ = 0;
  std::uint64_t their_receives_;
  std::uint64_t receives_;  // Posted by this end, of all.
  std::uint64_t credited_receives_;
  std::uint64_t credited_taken_ = 0;
  bool end_posted_ = false;
  Silence silence_;
  SlotQueue slots_;

  // Written with queue_ held.
  std::atomic<std::uint64_t> put_{0};
  std::atomic<std::uint64_t> arrived_{0};
  std::atomic<bool> failed_{false};
  std::atomic<ibv_wc_status> failure_{IBV_WC_SUCCESS};  // The first cause of failed_, if known.
  std::atomic<bool> ended_{false};  // The other end has closed it, behind all of its bytes.

  std::atomic<std::uint64_t> taken_{0};  // The receiving thread writes it.
  std::atomic<bool> asleep_{false};
  std::atomic<bool> armed_{false};  // By the last announce_sleep().
  std::atomic<bool> came_{false};   // Something, since the channel was armed.
  std::atomic<bool> closed_{false};

  std::mutex waiting_;  // Of threads that wait for ends. Never held together with queue_.
  std::condition_variable looked_;
  bool one_sleeps_ = false;  // Guarded by waiting_: a thread sleeps on the channel of requests.
  std::uint64_t looks_ = 0;  // Guarded by waiting_: how often such a thread has taken completions.

  std::mutex sleeping_;  // Of the sender. Never held together with queue_.
  std::condition_variable woken_;
  bool wake_ = false;  // Guarded by sleeping_.
};

}  // namespace gpurun::transport::rdma
