// Memory pool attributes: the value that was set, otherwise 0.
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "tests/drivers/null/api.h"

namespace gpurun::null_device::api {
namespace {

struct Pools {
  std::mutex mutex;
  std::map<std::pair<CUmemoryPool, CUmemPool_attribute>, std::uint64_t> values;
};

Pools& pools() {
  alignas(Pools) static unsigned char storage[sizeof(Pools)];
  static auto* const all = new (storage) Pools;
  return *all;
}

// Manual, "CUmemPool_attribute": the first three are int, the others cuuint64_t.
std::size_t bytes_of(CUmemPool_attribute attribute) {
  return attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES ? 4 : 8;
}

}  // namespace

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Pools& all = pools();
  const std::lock_guard lock(all.mutex);
  std::memcpy(&all.values[{pool, attr}], value, bytes_of(attr));
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Pools& all = pools();
  const std::lock_guard lock(all.mutex);
  std::memcpy(value, &all.values[{pool, attr}], bytes_of(attr));
  return CUDA_SUCCESS;
}

}  // namespace gpurun::null_device::api
