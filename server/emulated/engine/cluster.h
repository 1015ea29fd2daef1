// Cluster: what the blocks of a thread block cluster share: their barrier.
#pragma once

#include <cstdint>
#include <mutex>

namespace gpurun::emulated {

// Any thread.
class Cluster {
 public:
  explicit Cluster(std::uint64_t threads) : live_(threads) {}

  // One thread arrives; returns the phase that it is to wait for the end of.
  std::uint32_t arrive();
  // One thread has ended and counts as arrived from now on. `arrived`: it did arrive, in `phase`,
  // and did not wait.
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
