// Cluster: the state that the blocks of a thread block cluster share, which is their barrier.
#pragma once

#include <cstdint>
#include <mutex>

namespace gpurun::emulated {

// Any thread.
class Cluster {
 public:
  explicit Cluster(std::uint64_t threads) : live_(threads) {}

  // Records the arrival of one thread. Returns the phase that the thread must wait for.
  std::uint32_t arrive();
  // Records the end of one thread, which counts as arrived from then on. `arrived`: it has arrived,
  // in `phase`, without waiting.
  void leave(bool arrived, std::uint32_t phase);
  bool over(std::uint32_t phase) const;

 private:
  void complete_if_all_arrived();
  mutable std::mutex mutex_;
  std::uint64_t live_;
  std::uint64_t arrived_ = 0;
  std::uint32_t phase_ = 0;
};

}  // namespace gpurun::emulated
