// CopyBatch: the arguments of cuMemcpyBatchAsync, and the attributes of each copy. The client and
// the emulated device share it. Source: cuda.h of CUDA 13.0, cuMemcpyBatchAsync and
// CUmemcpySrcAccessOrder.
#pragma once

#include <cstddef>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

struct CopyBatch {
  // The program's arrays, each of `count` elements, read in place.
  const CUdeviceptr* destinations;
  const CUdeviceptr* sources;
  const std::size_t* bytes;
  std::size_t count;
  // Arrays of `attribute_count` elements: attributes, and the first copy that each applies to.
  const CUmemcpyAttributes* attributes;
  const std::size_t* firsts;
  std::size_t attribute_count;

  // If false, the call returns INVALID_VALUE and makes no copy. cuda.h: the first entry of `firsts`
  // is 0. Each entry is greater than the one before, and the last is less than `count`. Every copy
  // has a valid access order.
  bool valid() const noexcept {
    if (count == 0 || destinations == nullptr || sources == nullptr || bytes == nullptr ||
        attributes == nullptr || firsts == nullptr || attribute_count == 0 ||
        attribute_count > count || firsts[0] != 0) {
      return false;
    }
    for (std::size_t i = 0; i < attribute_count; ++i) {
      if (i > 0 && firsts[i] <= firsts[i - 1]) return false;
      const CUmemcpySrcAccessOrder order = attributes[i].srcAccessOrder;
      if (firsts[i] >= count || order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
          order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY) {
        return false;
      }
    }
    return true;
  }

  // Calls `each(index, order)` for the copies in turn until one returns other than 0. Returns that
  // result, with the copy's index in `failed`. The batch must be valid.
  template <typename Each>
  int visit(std::size_t* failed, Each each) const {
    std::size_t set = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (set + 1 < attribute_count && firsts[set + 1] == i) ++set;
      if (const int result = each(i, attributes[set].srcAccessOrder); result != 0) {
        *failed = i;
        return result;
      }
    }
    return 0;
  }
};

}  // namespace gpurun::driver_abi
