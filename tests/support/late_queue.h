// Late queue: the parts of delayed_link. They are a queue of pieces that leave when their time has
// come, and a wire with a limited number of bytes a second.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace gpurun::world {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPieceBytes = std::size_t{256} << 10;

// Sleeps until shortly before `due` and then spins. A sleeping thread wakes late, by more than the
// link's precision.
inline void wait_until(Clock::time_point due) {
  constexpr auto kEarly = std::chrono::microseconds(150);
  std::this_thread::sleep_until(due - kEarly);
  while (Clock::now() < due) {  // A thread that yields to a busy one may lose a whole tick.
  }
}

// One direction of one connection. One thread adds pieces, another passes them on.
class LateQueue {
 public:
  using Buffer = std::unique_ptr<char[]>;
  struct Piece {
    Buffer bytes;
    std::size_t size = 0;  // 0: the end of the direction.
    Clock::time_point came, due;
  };

  // Returns a buffer of kPieceBytes. Buffers are reused, so that a fast stream does not wait for
  // fresh pages. They are not filled, because most messages are short.
  Buffer buffer() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (spare_.empty()) return Buffer(new char[kPieceBytes]);
    Buffer taken = std::move(spare_.back());
    spare_.pop_back();
    return taken;
  }
  void give_back(Buffer buffer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    spare_.push_back(std::move(buffer));
  }

  // Blocks while the queue is full. A fast link holds much in a long delay.
  void add(Piece piece) {
    std::unique_lock<std::mutex> lock(mutex_);
    room_.wait(lock, [this] { return pieces_.size() < kPiecesMax; });
    pieces_.push_back(std::move(piece));
    added_.notify_one();
  }

  // Calls `deliver` with each piece at its time, until the last one. After a failed delivery it
  // drops the others, so that the sender does not wait for a peer that has gone.
  template <typename Deliver>
  void pass_on(Deliver deliver) {
    Clock::time_point before = Clock::now() - kSeldom;
    for (bool last = false, broken = false; !last;) {
      std::unique_lock<std::mutex> lock(mutex_);
      added_.wait(lock, [this] { return !pieces_.empty(); });
      Piece piece = std::move(pieces_.front());
      pieces_.pop_front();
      room_.notify_one();
      lock.unlock();
      last = piece.size == 0;
      if (!broken) {
        // A thread that is often due must not spin all the time.
        const bool seldom = piece.due - before >= kSeldom;
        if (seldom) {
          wait_until(piece.due);
        } else {
          std::this_thread::sleep_until(piece.due);
        }
        before = piece.due;
        broken = !deliver(piece);
      }
      give_back(std::move(piece.bytes));
    }
  }

 private:
  static constexpr std::size_t kPiecesMax = 2048;  // Of kPieceBytes at most.
  static constexpr auto kSeldom = std::chrono::milliseconds(1);
  std::mutex mutex_;
  std::condition_variable added_, room_;
  std::deque<Piece> pieces_;
  std::vector<Buffer> spare_;
};

// A wire that connections share in turns, as TCP does, because each waits for its piece before it
// brings the next. Any thread may call carry().
class SlowWire {
 public:
  static constexpr std::size_t kTurnBytes = std::size_t{16} << 10;  // Size of a piece.

  explicit SlowWire(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}

  // Returns when the last of `bytes` is on the wire.
  void carry(std::size_t bytes) {
    std::unique_lock<std::mutex> lock(mutex_);
    // A thread that woke late may catch up.
    free_at_ = std::max(free_at_, Clock::now() - kLateness);
    free_at_ += std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_s_));
    const Clock::time_point gone = free_at_;
    lock.unlock();
    std::this_thread::sleep_until(gone);
  }

 private:
  static constexpr auto kLateness = std::chrono::milliseconds(5);
  const double bytes_per_s_;
  std::mutex mutex_;
  Clock::time_point free_at_ = Clock::now();
};

}  // namespace gpurun::world
