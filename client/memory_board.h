// MemoryBoard: pages that gpurun shares with the processes of its program, for out-of-memory that
// is exact though each holds device memory in advance (docs/adr/0005): a process says how much it
// holds idle, and one that lacks memory asks the others to give theirs back. NVML reads from it
// what each process uses.
//
// It lies behind the DeathBoard, in the same file. Any process of the program can write to it: what
// is said there is believed of the processes of one lease only, and asked for at most for a
// patience. Any thread may call everything.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace gpurun::client {

class MemoryBoard {
 public:
  // Devices, by the worker's ordinal, that are shared so; of others nothing is said.
  static constexpr int kDevices = 16;
  static constexpr std::size_t kBytes = std::size_t{64} << 10;
  static constexpr std::size_t kOffset = 4096;

  // Maps it for this process's life. nullptr: it cannot be had, and each process is on its own.
  static MemoryBoard* open(const std::string& path) noexcept;
  static MemoryBoard* map(int fd) noexcept;

  // Takes a place for this process, whose number is `process`; -1: all are taken by the living.
  int join(std::uint32_t process) noexcept;
  void say_idle(int place, int device, std::uint64_t bytes) noexcept;

  // What the process of that place has allocated on a device, and whether it has a context there.
  void say_used(int place, int device, std::uint64_t bytes) noexcept;
  void say_contexts(int place, int device, bool any) noexcept;
  struct User {
    std::uint32_t process = 0;
    std::uint64_t bytes = 0;
  };
  // The living processes that have memory or a context on a device, at most `capacity` of them.
  unsigned users(int device, User* users, unsigned capacity) noexcept;

  // What the living others hold idle.
  std::uint64_t idle_elsewhere(int place, int device) noexcept;
  // Asks the others, and waits until each has answered or died, or for `patience`; for one that was
  // silent so long nobody waits until it has answered again. False: there are none.
  bool ask(int place, std::chrono::milliseconds patience) noexcept;
  // Some have died within `patience`: what they had may come back any moment, when their workers
  // have ended, too.
  bool some_just_died(int place, std::chrono::milliseconds patience) noexcept;

  // Nobody waits for the process of that place until it has answered once.
  void stay_silent(int place) noexcept;
  // The last question that was asked when this process joined, or that it has answered.
  std::uint32_t answered(int place) noexcept;
  // Waits until another process asks again: `seen` is what this returned before, answered() at
  // first. What the process of `place` asks by itself is none of its business.
  std::uint32_t await_question(int place, std::uint32_t seen) noexcept;
  // What was asked up to `question` is done.
  void answer(int place, std::uint32_t question) noexcept;

  // Whether a process of that number lives. One that has ended lives no more though its parent has
  // not asked for its status.
  static bool lives(std::uint32_t process) noexcept;

 private:
  MemoryBoard() = delete;
};

// This process's, once it is connected; nullptr: there is none.
inline std::atomic<MemoryBoard*> shared_memory_board{nullptr};
// Its place there; -1: it has none, and nobody waits for it.
inline std::atomic<int> shared_memory_place{-1};
// Takes one, if it has none yet; -1: there is none, or no board. One thread at a time.
int join_memory_board() noexcept;

}  // namespace gpurun::client
