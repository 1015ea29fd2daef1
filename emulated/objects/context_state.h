// ContextState: what a stream needs of its context. It has the device, the sticky error, and the
// state of kernels with its limits.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "driver_abi/cuda_abi.h"
#include "emulated/objects/handle_table.h"

namespace gpurun::emulated {

class ContextRuntime;
class Device;

// Any thread.
class ContextState : public Object {
 public:
  static constexpr int kLimits = 16;

  Device& device() const { return device_; }
  // Unique in the process (cuCtxGetId). A primary context gets a new one when it is reset.
  std::uint64_t id() const { return id_.load(); }

  std::atomic<std::size_t> limits[kLimits];

  // The error that every later call returns. CUDA_SUCCESS without an error.
  CUresult sticky_error() const {
    return static_cast<CUresult>(sticky_error_.load(std::memory_order_acquire));
  }
  // Keeps the first failure, and ends the kernels that still run in this context with it.
  void fail(CUresult error);

  // The state that the kernels of this context share: printf buffer and heap. A new one after
  // end_context().
  std::shared_ptr<ContextRuntime> runtime();
  // Shows what kernels have printed. Called where CUDA shows it (Programming Guide, "Formatted
  // output").
  void flush_output();
  // Sets one of `limits`. Limits of printf, heap and launches by kernels are also set in runtime().
  void set_limit(CUlimit limit, std::size_t value);

 protected:
  ContextState(ObjectKind kind, Device& device);
  // The next runtime() is a new one.
  void drop_runtime();
  // Forgets the sticky error. The context gets a new id.
  void forget_error();

 private:
  Device& device_;
  std::atomic<std::uint64_t> id_;
  std::atomic<int> sticky_error_{0};
  std::mutex mutex_;
  std::shared_ptr<ContextRuntime> runtime_;  // Guarded by mutex_.
};

}  // namespace gpurun::emulated
