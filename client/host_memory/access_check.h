// AccessCheck: finds accesses of the program to managed memory while work is under way, for
// GPURUN_HOST_MEMORY=check. The host must not touch managed memory then on devices without
// CONCURRENT_MANAGED_ACCESS (CUDA C++ Programming Guide, "Coherency and Concurrency").
//
// Memory that work may use has no access in this process. The first access to an allocation faults.
// The handler of SIGSEGV logs the address and the kernel, and gives back the access to the
// allocation. The access is then carried out. The next work ends the access again. A system call
// that is passed such memory fails with EFAULT instead.
//
// cuStreamAttachMemAsync: memory that is attached to a stream must not be touched only while that
// stream has work. Memory that is attached to the host may be touched at any time (CUDA driver
// manual).
//
// There is one in a process, which is never destroyed. A forked child begins another one. Any
// thread may call it. Other faults go to the handler that the program has set. Accesses while this
// process exchanges changes with the worker are not found.
#pragma once

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "client/log/handles.h"

namespace gpurun::client {

class AccessCheck {
 public:
  // Where work was issued: a stream as in CallSite, of a context.
  struct Stream {
    Handle context = 0;
    Handle stream = 0;
  };
  // Whether work may be under way in a stream. Called in a signal handler.
  struct UnderWay {
    bool (*ask)(const void* of, Stream stream) = nullptr;
    const void* of = nullptr;
  };
  enum class Attachment : std::uint8_t { kGlobal, kHost, kStream };

  // Of this process. nullptr: nothing is checked.
  static AccessCheck* active() noexcept { return g_active.load(std::memory_order_acquire); }
  // Begins the check, or replaces `under_way`.
  static AccessCheck& begin(UnderWay under_way);

  // An allocation, or a variable. The whole pages around it are this mirror's. At most
  // kAllocationsMax: the others are not checked, with a warning.
  static constexpr std::size_t kAllocationsMax = 4'096;
  void add(std::uint64_t address, std::uint64_t bytes);
  // Gives its access back.
  void remove(std::uint64_t address);
  void attach(std::uint64_t address, Attachment attachment, Stream stream);

  // Work was issued, or is about to be. `name`: the kernel, or the call.
  void note_work(Stream stream, std::string_view name);
  // The work was issued: ends the access to what it may use.
  void begin_work();
  // Between both, this process itself may access all allocations. end: ends the program's access to
  // what work under way may use. One pair for each thread, at most one inside another.
  void begin_own_access() noexcept;
  void end_own_access();

 private:
  struct Allocation {
    std::atomic<std::uint64_t> address{0};  // 0: a free place.
    std::atomic<std::uint64_t> bytes{0};
    std::uint64_t pages_begin() const noexcept;
    std::uint64_t pages_end() const noexcept;
    std::atomic<Attachment> attachment{Attachment::kGlobal};
    std::atomic<Handle> context{0}, stream{0};
    std::atomic<bool> denied{false};
    std::atomic<bool> reported{false};  // Since work was issued.
  };
  // The last work of a stream. The names are never freed.
  struct Work {
    std::atomic<const char*> name{nullptr};
    std::atomic<Handle> context{0}, stream{0};
    std::atomic<std::uint64_t> number{0};
  };

  AccessCheck() = default;
  static void handle(int signal, siginfo_t* info, void* context);
  void pass_on(int signal, siginfo_t* info, void* context) noexcept;
  void install();
  bool report(std::uint64_t address, const char* kind) noexcept;
  bool is_under_way(Stream stream) const noexcept;
  // The work issued last of that under way. nullptr: none is.
  const char* work_under_way() const noexcept;
  // The allocation may be used by work that is under way.
  bool may_be_used(const Allocation& allocation) const noexcept;
  Allocation* find(std::uint64_t address) noexcept;
  Allocation* beginning_at(std::uint64_t address) noexcept;
  // False: the system refuses.
  static bool protect(Allocation& allocation, bool denied) noexcept;
  static void act_by_default(int signal, const siginfo_t* info) noexcept;
  static void forget_parents();
  // These need the mutex.
  void set_access(Allocation& allocation) noexcept;
  void allow_all() noexcept;

  void deny();

  static std::atomic<AccessCheck*> g_active;

  std::atomic<bool (*)(const void*, Stream)> ask_{nullptr};
  std::atomic<const void*> of_{nullptr};
  std::array<Allocation, kAllocationsMax> allocations_;
  std::atomic<std::size_t> used_{0};  // Places of allocations_ that were ever used.
  std::array<Work, 32> works_;
  std::atomic<std::uint64_t> numbers_{0};
  int own_accesses_ = 0;          // Guarded by mutex_.
  struct sigaction previous_ {};  // The program's. Written before the handler is set.
  // The thread in the program's handler, and the last one that was there.
  std::atomic<pid_t> passing_{0}, passed_{0};
  std::mutex mutex_;  // Guards names_, changes of allocations_ and works_, and install().
  std::set<std::string, std::less<>> names_;
  bool said_full_ = false;
};

}  // namespace gpurun::client
