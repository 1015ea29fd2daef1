// CopyBatch: the arguments of cuMemcpyBatchAsync, and which of its copies has which attributes; for
// the client and the emulated device alike. Source: cuda.h of CUDA 13.0, cuMemcpyBatchAsync and
// CUmemcpySrcAccessOrder.
#pragma once

#include <cstddef>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

struct CopyBatch {
  // The program's, each of `count`; read where they lie.
  const CUdeviceptr* destinations;
  const CUdeviceptr* sources;
  const std::size_t* bytes;
  std::size_t count;
  // Each of `attribute_count`: the attributes, and the first copy that has them.
  const CUmemcpyAttributes* attributes;
  const std::size_t* firsts;
  std::size_t attribute_count;

  // Otherwise INVALID_VALUE, and no copy is made. cuda.h: the first entry of `firsts` is 0, each is
  // greater than the one before, the last less than `count`; every copy has a valid access order.
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

  // Calls `each(index, order)` for the copies in turn until one returns other than 0; that, and the
  // copy's index in `failed`. Only of a valid batch.
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
