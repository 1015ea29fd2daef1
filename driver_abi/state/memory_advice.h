// Memory advice: what a program has said about ranges of managed memory, and what
// cuMemRangeGetAttribute returns for them. Client and emulated device both have the memory where
// host and device reach it at any time. So advice and prefetches are hints that move nothing.
//
// Source: CUDA Driver API manual, "Unified Addressing": cuMemAdvise, cuMemPrefetchAsync,
// cuMemRangeGetAttribute. Ranges of the program are widened to whole pages (manual).
//
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

class MemoryAdvice {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;

  // An allocation begins, without advice, or ends.
  void add(std::uint64_t base, std::uint64_t bytes);
  void remove(std::uint64_t base);
  // Whether one allocation holds all of the range, which is not empty.
  bool holds(std::uint64_t address, std::uint64_t bytes) const;

  // cuMemAdvise. `devices`: how many the program sees. INVALID_VALUE: not managed memory, or no
  // such advice or location. INVALID_DEVICE: no such device.
  CUresult advise(std::uint64_t address, std::uint64_t bytes, CUmem_advise advice,
                  CUmemLocation location, int devices);
  // cuMemPrefetchAsync, without its stream. Errors as advise().
  CUresult prefetch(std::uint64_t address, std::uint64_t bytes, CUmemLocation location,
                    unsigned flags, int devices);
  // The arrays of cuMemPrefetchBatchAsync and cuMemDiscardBatchAsync. Location k is that of the
  // ranges from starts[k] up to starts[k + 1].
  struct Batch {
    const CUdeviceptr* addresses = nullptr;
    const std::size_t* sizes = nullptr;
    std::size_t count = 0;
    const CUmemLocation* locations = nullptr;
    const std::size_t* starts = nullptr;
    std::size_t location_count = 0;
    unsigned long long flags = 0;
  };
  // cuMemPrefetchBatchAsync, and cuMemDiscardAndPrefetchBatchAsync, without their streams. Errors
  // as advise(), and nothing has changed then.
  CUresult prefetch(const Batch& batch, int devices);
  // cuMemDiscardBatchAsync, which needs no locations. What the ranges hold is kept, which the
  // manual allows.
  CUresult discard(const Batch& batch) const;
  // cuMemRangeGetAttribute. INVALID_VALUE: not managed memory, no such attribute, or not its size.
  CUresult attribute(void* out, std::size_t out_bytes, CUmem_range_attribute which,
                     std::uint64_t address, std::uint64_t bytes) const;

 private:
  struct Facts {
    bool read_mostly = false;
    CUmemLocation preferred{};
    CUmemLocation prefetched{};
    std::vector<int> accessed_by;  // Devices, or CU_DEVICE_CPU, in the order of the advice.
  };
  struct Part {
    std::uint64_t end = 0;
    std::uint64_t base = 0;  // Of the allocation.
    Facts facts;
  };
  using Parts = std::map<std::uint64_t, Part>;  // By start. Together they are all allocations.

  bool holds_locked(std::uint64_t address, std::uint64_t bytes) const;
  bool holds_all(const Batch& batch) const;
  Parts::iterator split(std::uint64_t at);
  template <typename Change>
  void change(std::uint64_t address, std::uint64_t bytes, Change change);
  std::vector<const Facts*> facts_of(std::uint64_t address, std::uint64_t bytes) const;

  mutable std::mutex mutex_;
  Parts parts_;  // Guarded by mutex_.
};

// The location that the calls without CUmemLocation mean by a device number.
inline CUmemLocation location_of(CUdevice device) {
  CUmemLocation location{};
  location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device == CU_DEVICE_CPU ? 0 : device;
  return location;
}

}  // namespace gpurun::driver_abi
