// Ends: the two ends of a bare measurement. They are this process and a child, joined by TCP over
// loopback or by a word of shared memory.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace gpurun::bench {

enum class Placement { kFree, kAcross };    // kAcross: the ends stay on different cores.
enum class Pacing { kAsTheSystem, kNone };  // kNone: Reno, even where the system default is BBR.

// Ends the process with the text of errno unless `fine`.
void check(bool fine, const char* what);
void send_all(int socket, const char* data, std::size_t size);
enum class Waiting { kAsleep, kAwake };  // kAwake: polls, and yields the processor in between.
// Ends the process quietly when the peer has gone.
void receive_all(int socket, char* data, std::size_t size, Waiting waiting = Waiting::kAsleep);

// A child process that runs `serve` with its ends of `connections` connections, and exits.
class Pair {
 public:
  using Serve = std::function<void(const std::vector<int>& sockets)>;
  Pair(Placement placement, int connections, const Serve& serve,
       Pacing pacing = Pacing::kAsTheSystem);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  const std::vector<int>& sockets() const { return sockets_; }

 private:
  std::vector<int> sockets_;
  pid_t child_ = 0;
};

// A child process that answers `pings` times in a word of shared memory. Both ends sleep in a
// futex.
class FutexPair {
 public:
  FutexPair(Placement placement, int pings);
  ~FutexPair();
  FutexPair(const FutexPair&) = delete;
  FutexPair& operator=(const FutexPair&) = delete;
  void ping() const;

 private:
  struct Word {
    std::atomic<std::uint32_t> turn{0};  // 0: the parent's turn.
  };
  static void pass_to(Word* word, std::uint32_t turn);
  static void wait_for(Word* word, std::uint32_t turn);

  Word* word_ = nullptr;
  pid_t child_ = 0;
};

}  // namespace gpurun::bench
