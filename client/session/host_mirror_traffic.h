// HostMirrorTraffic: brings what the program writes to its mirrored memory to the worker, and what
// the device writes there back (docs/adr/0042, protocol/calls/host_mirror.h).
//
// The program's writes go ahead of each call with work that may read them. The device's writes are
// asked for when a call has shown the program that work is complete, before that call returns. They
// are not asked for again until more work was issued.
//
// One exchange is under way at a time. Threads that need another one wait for it. An exchange waits
// for room in the log and for the worker, but never for the device.
//
// Any thread. Without mirrored memory each call costs one load.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "client/host_memory/access_check.h"
#include "client/host_memory/host_mirror.h"
#include "client/log/lane.h"
#include "client/session/session_types.h"

namespace gpurun::client {

class HostMirrorTraffic {
 public:
  // The session's parts, which are made later.
  struct Calls {
    std::function<int(Lane&, const CallSite&, ByteView)> post;
    // Sends a question, the only one of the lane that is under way. False: the session has ended.
    std::function<bool(Lane&, const CallSite&, std::span<const ByteView>, std::uint64_t* sequence)>
        ask;
    // Waits for the reply, which is valid until the lane's next call. False: the session has ended.
    std::function<bool(Lane&, const CallSite&, std::uint64_t sequence, Reply*)> answer;
    // Whether work on the device may be under way that uses such memory.
    std::function<bool()> device_may_use;
    std::function<void(Status)> die;
  };
  explicit HostMirrorTraffic(Calls calls) : calls_(std::move(calls)) {}
  HostMirrorTraffic(const HostMirrorTraffic&) = delete;
  HostMirrorTraffic& operator=(const HostMirrorTraffic&) = delete;

  // Call it once, before the first add(), on a thread with its signals blocked. False: the
  // program's writes are found by comparison alone.
  bool open(int fd_min) { return mirror_.watch().open(fd_min); }
  // Before the first add(), too. Accesses of the program to memory that is used in turn are
  // checked.
  void check_accesses(AccessCheck& check) noexcept { check_ = &check; }
  // See HostMirror. The worker has mapped the block.
  bool add(std::uint64_t address, std::uint64_t bytes, std::byte* memory, bool noted);
  void remove(std::uint64_t address);
  void add_allocation(std::uint64_t address, std::uint64_t bytes, bool in_turn, std::size_t first,
                      std::size_t last);
  // What the device has written there is taken first. Otherwise the next allocation at this place
  // would get it later.
  void remove_allocation(Lane& lane, std::uint64_t address);

  // Posts what the program has written. The caller then appends work that may read it.
  void give(Lane& lane);
  // The work of `site` was appended.
  void note_work(const CallSite& site) noexcept;
  // Waits until is_due(), or end_polls().
  void await_work();
  void end_polls() noexcept;
  bool polls() const noexcept { return !ended_.load(std::memory_order_acquire); }
  // The lane's thread has learned that work is complete. Returns when the program can see what that
  // work has written. False: the session has ended before. Keeps nothing of the lane's reply.
  bool take(Lane& lane);
  // As take(), but asks at once, and only for [address, address + bytes), whole lines. Work that
  // was issued before may still write there, so that the next take() asks, too.
  bool take_range(Lane& lane, std::uint64_t address, std::uint64_t bytes);
  // While work goes on: exchanges the memory that may hold flags. Returns whether something
  // changed. Ends the polls if the session has ended.
  bool poll(Lane& lane);
  // While the result lives, no exchange reads or writes this process's copies. For a copy by this
  // process into such memory, which is the device's work to the program.
  class Hold {
   public:
    explicit Hold(HostMirrorTraffic& of)
        : lock_(of.exists() ? std::unique_lock(of.mutex_) : std::unique_lock<std::mutex>()),
          check_(lock_.owns_lock() ? of.check_ : nullptr) {
      if (check_ != nullptr) check_->begin_own_access();
    }
    ~Hold() {
      if (check_ != nullptr) check_->end_own_access();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    const std::unique_lock<std::mutex> lock_;
    AccessCheck* const check_;
  };
  Hold hold_exchanges() { return Hold(*this); }
  // How many calls with work were issued.
  std::uint64_t issued() const noexcept { return issued_.load(std::memory_order_acquire); }
  // Whether take() has something to do.
  bool is_due() const noexcept { return exists() && issued_.load() != taken_.load(); }

 private:
  // While it lives, this thread may access memory that is checked. With the mutex.
  class Access {
   public:
    explicit Access(HostMirrorTraffic& of) : of_(of) {
      if (of.check_ != nullptr) of.check_->begin_own_access();
    }
    ~Access() {
      if (of_.check_ != nullptr) of_.check_->end_own_access();
    }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    HostMirrorTraffic& of_;
  };
  void deny_access(const CallSite& site);
  void count_work() noexcept;
  bool exists() const noexcept { return blocks_.load(std::memory_order_acquire) != 0; }
  struct Question {
    protocol::HostMirrorStep step{};
    std::span<const protocol::HostMirrorRange> ranges;
    std::uint64_t from = 0;  // Of the ranges' memory.
    std::uint64_t sequence = 0;
  };
  // Asks for changes. False: the session has ended. These need the mutex.
  bool ask(Lane& lane, Question* question);
  // Waits for the answer. `next` is where the next question begins, or 0. False: the session has
  // ended, or ends because the worker's reply is malformed.
  bool answer(Lane& lane, const Question& question, std::uint64_t* next, Bytes* pieces);
  // Takes all changes of `ranges`, which are not empty.
  bool take_ranges(Lane& lane, std::span<const protocol::HostMirrorRange> ranges);
  bool merge(ByteView pieces);
  // Takes what the device has written, except to the allocations `left_out`.
  bool take_all(Lane& lane, std::span<const protocol::HostMirrorRange> left_out, bool idle);

  const Calls calls_;
  std::atomic<std::size_t> blocks_{0};
  // Calls with work that may write. taken_: as many of them were complete before the last exchange.
  std::atomic<std::uint64_t> issued_{0};
  std::atomic<std::uint64_t> taken_{0};
  std::atomic<bool> ended_{false};
  std::atomic<bool> polls_sleep_{false};  // A thread is in await_work().
  std::mutex sleeping_;                   // A leaf.
  std::condition_variable work_came_;
  AccessCheck* check_ = nullptr;  // Does not change after the first add().
  std::mutex mutex_;
  HostMirror mirror_;  // Guarded by mutex_, after open().
};

}  // namespace gpurun::client
