// SharedMemoryPressure: pages that gpurun shares with the processes of its program. They make
// out-of-memory exact although each process holds device memory in advance (docs/adr/0005).
//
// A process writes how much it holds idle. A process that lacks memory asks the others to give
// theirs back. NVML reads from the pages what each process uses. They are behind the
// WorkerExitPage, in the same file. Any process of the program can write to them. So a wrong value
// harms only the processes of one lease, and each question waits only for a bounded time. Any
// thread may call everything.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gpurun::client {

class SharedMemoryPressure {
 public:
  // Devices that are covered, by the worker's ordinal. Calls for other devices do nothing.
  static constexpr int kDevices = 16;
  static constexpr std::size_t kBytes = std::size_t{64} << 10;
  static constexpr std::size_t kOffset = 4096;

  // Maps it for this process's life. nullptr: it is not available, and each process is on its own.
  static SharedMemoryPressure* open(const std::string& path) noexcept;
  static SharedMemoryPressure* map(int fd) noexcept;

  // Takes a place for this process, with the number `process`. -1: living processes have taken all.
  int join(std::uint32_t process) noexcept;
  void say_idle(int place, int device, std::uint64_t bytes) noexcept;

  // Writes what the process of that place has allocated on a device, and whether it has a context
  // there.
  void say_used(int place, int device, std::uint64_t bytes) noexcept;
  void say_contexts(int place, int device, bool any) noexcept;
  struct User {
    std::uint32_t process = 0;
    std::uint64_t bytes = 0;
  };
  // Returns the living processes with memory or a context on a device, at most `capacity` of them.
  unsigned users(int device, User* users, unsigned capacity) noexcept;

  // Returns what the other living processes hold idle.
  std::uint64_t idle_elsewhere(int place, int device) noexcept;
  // Asks the others, and waits until each has answered or died, or for `patience`. A process that
  // was silent so long is not waited for until it has answered again. Returns false if none was
  // asked.
  bool ask(int place, std::chrono::milliseconds patience) noexcept;
  // Returns whether some have died within `patience`. Their memory may come back at any moment,
  // when their workers have ended, too.
  bool some_just_died(int place, std::chrono::milliseconds patience) noexcept;

  // The process of that place is not waited for until it has answered once.
  void stay_silent(int place) noexcept;
  // Returns the last question at this process's join, or the last one that it has answered.
  std::uint32_t answered(int place) noexcept;
  // Waits until another process asks again. `seen` is the last return value, answered() at first.
  // Questions of the process of `place` itself are skipped.
  std::uint32_t await_question(int place, std::uint32_t seen) noexcept;
  // All questions up to `question` are answered.
  void answer(int place, std::uint32_t question) noexcept;

  // Returns whether a process with that number lives. A process that has ended counts as dead even
  // before its parent has read its status.
  static bool lives(std::uint32_t process) noexcept;

 private:
  SharedMemoryPressure() = delete;
};

// This process's board, once it is connected. nullptr: there is no board.
inline std::atomic<SharedMemoryPressure*> shared_memory_board{nullptr};
// Its place there. -1: it has no place, and no process waits for it.
inline std::atomic<int> shared_memory_place{-1};
// Takes a place, if this process has none yet. -1: no place is free, or there is no board. One
// thread at a time.
int join_memory_board() noexcept;

}  // namespace gpurun::client
