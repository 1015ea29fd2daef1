// DeviceHeap: malloc() and free() of kernels, bounded by CU_LIMIT_MALLOC_HEAP_SIZE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace gpurun::emulated {

// Any thread. The destructor frees all of it, as the end of a CUDA context does.
class DeviceHeap {
 public:
  // 8 MiB unless set (CUDA Programming Guide, "Dynamic global memory allocation").
  static constexpr std::size_t kBytesDefault = std::size_t{8} << 20;

  DeviceHeap() = default;
  ~DeviceHeap();
  DeviceHeap(const DeviceHeap&) = delete;
  DeviceHeap& operator=(const DeviceHeap&) = delete;

  void set_limit(std::size_t bytes);
  std::size_t limit() const;
  std::size_t bytes_used() const;

  // 16-aligned memory, not zeroed. 0 when the heap is full.
  std::uint64_t allocate(std::uint64_t bytes);
  // False, and nothing is done, when `address` is not from allocate() or was released. 0 is allowed
  // and does nothing.
  bool release(std::uint64_t address);

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::size_t> live_;
  std::size_t limit_ = kBytesDefault;
  std::size_t used_ = 0;
};

}  // namespace gpurun::emulated
