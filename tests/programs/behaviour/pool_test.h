// Pool test: the parts that driver-API programs about the pools of devices share. They print what
// they see, so that a native and a forwarded run can be compared.
#pragma once

#include <cstdint>
#include <cstdio>

#include "driver_test.h"

namespace pool_test {

inline void expect(CUresult result, CUresult wanted, const char* what) {
  const char* name = "unknown";
  (void)cuGetErrorName(result, &name);
  std::printf("%s: %s\n", what, name);
  if (result != wanted) cuda_check::fail(__FILE__, __LINE__, what, name);
}

inline void expect(std::uint64_t seen, std::uint64_t wanted, const char* what) {
  std::printf("%s: %llu\n", what, static_cast<unsigned long long>(seen));
  if (seen != wanted) cuda_check::fail(__FILE__, __LINE__, what, "wrong value");
}

inline CUdeviceptr allocate(size_t bytes, CUstream stream) {
  CUdeviceptr made;
  MUST(cuMemAllocAsync(&made, bytes, stream));
  return made;
}

inline CUmemoryPool own_pool(CUdevice device) {
  CUmemoryPool pool;
  MUST(cuDeviceGetDefaultMemPool(&pool, device));
  return pool;
}
inline cuuint64_t account(CUmemoryPool pool, CUmemPool_attribute which) {
  cuuint64_t value = 0;
  MUST(cuMemPoolGetAttribute(pool, which, &value));
  return value;
}
inline cuuint64_t used(CUdevice device) {
  return account(own_pool(device), CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
}
inline cuuint64_t high(CUdevice device) {
  return account(own_pool(device), CU_MEMPOOL_ATTR_USED_MEM_HIGH);
}
inline void set(CUmemoryPool pool, CUmemPool_attribute which, cuuint64_t value) {
  MUST(cuMemPoolSetAttribute(pool, which, &value));
}
// The pool may hold on to its memory at a wait, so that frees are kept across waits.
inline void hold_memory(CUdevice device, bool hold) {
  set(own_pool(device), CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, hold ? 1 << 30 : 0);
}

// Frees memory, which is free when this returns.
inline void free_in(CUstream stream, CUdeviceptr memory) {
  MUST(cuMemFreeAsync(memory, stream));
  MUST(cuStreamSynchronize(stream));
}

// Words of device memory, all 0.
struct Words {
  CUdeviceptr flag = Device::memory(12), seen = flag + 4, result = flag + 8;
  Words() { clear(); }
  ~Words() { MUST(cuMemFree(flag)); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  void clear() const {
    MUST(cuMemsetD32(flag, 0, 3));
    MUST(cuCtxSynchronize());
  }
};

// Work of some tenths of a second.
class LongFill {
 public:
  LongFill() = default;
  ~LongFill() { MUST(cuMemFree(memory_)); }
  LongFill(const LongFill&) = delete;
  LongFill& operator=(const LongFill&) = delete;
  void run_in(CUstream stream) const {
    for (int i = 0; i < 4; ++i) MUST(cuMemsetD32Async(memory_, 1, kFillBytes / 4, stream));
  }

 private:
  static constexpr size_t kFillBytes = size_t{512} << 20;
  CUdeviceptr memory_ = Device::memory(kFillBytes);
};

}  // namespace pool_test
