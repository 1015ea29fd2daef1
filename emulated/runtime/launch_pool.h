// LaunchPool: the budget of a context for launches that kernels make: outstanding launches, and
// bytes of their parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

namespace gpurun::emulated {

// Any thread. Must outlive its shares.
class LaunchPool {
 public:
  // The default of CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT (manual, cuCtxSetLimit).
  static constexpr std::size_t kLaunchesDefault = 2048;
  // Bounds of what kernels can make this process keep, whatever the limit was set to.
  static constexpr std::size_t kLaunchesMax = std::size_t{1} << 20;
  static constexpr std::size_t kParameterBytesMax = std::size_t{256} << 20;

  // A part of the budget. The destructor gives it back.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)),
          launches_(other.launches_),
          bytes_(other.bytes_) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(launches_, other.launches_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (pool_ != nullptr) pool_->give_back(launches_, bytes_);
    }
    // Whether the pool had enough.
    explicit operator bool() const { return pool_ != nullptr; }

   private:
    friend class LaunchPool;
    Share(LaunchPool* pool, std::size_t launches, std::size_t bytes)
        : pool_(pool), launches_(launches), bytes_(bytes) {}
    LaunchPool* pool_ = nullptr;
    std::size_t launches_ = 0;
    std::size_t bytes_ = 0;
  };

  void set_limit(std::size_t launches) {
    const std::lock_guard lock(mutex_);
    limit_ = launches < kLaunchesMax ? launches : kLaunchesMax;
  }

  Share take_launch() { return take(1, 0); }
  Share take_bytes(std::size_t bytes) { return take(0, bytes); }

 private:
  Share take(std::size_t launches, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (launches > 0 && launches_ >= limit_) return {};
    if (bytes > kParameterBytesMax - bytes_) return {};
    launches_ += launches;
    bytes_ += bytes;
    return {this, launches, bytes};
  }
  void give_back(std::size_t launches, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    launches_ -= launches;
    bytes_ -= bytes;
  }

  std::mutex mutex_;
  std::size_t limit_ = kLaunchesDefault;
  std::size_t launches_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace gpurun::emulated
