// CUDA arrays: they keep the bytes that are copied to them. Only plain formats have a size.
#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "tests/drivers/null/api.h"
#include "tests/drivers/null/arrays.h"
#include "tests/drivers/null/entry.h"

namespace gpurun::null_device {
namespace {

struct Stored {
  std::vector<unsigned char> bytes;
  std::size_t pitch, height, depth;
};

struct Arrays {
  std::mutex mutex;
  std::map<CUarray, Stored> all;
};

Arrays& arrays() {
  alignas(Arrays) static unsigned char storage[sizeof(Arrays)];
  static auto* const all = new (storage) Arrays;
  return *all;
}

std::size_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& of) {
  switch (of.Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return of.NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2u * of.NumChannels;
    default:
      return 4u * of.NumChannels;
  }
}

constexpr std::size_t kBytesMax = std::size_t{1} << 30;

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& of) {
  Stored made;
  made.height = std::max<std::size_t>(1, of.Height);
  made.depth = std::max<std::size_t>(1, of.Depth);
  std::size_t bytes = 0;
  if (of.Width == 0 || of.NumChannels == 0 || of.NumChannels > 4) return CUDA_ERROR_INVALID_VALUE;
  if (__builtin_mul_overflow(of.Width, element_bytes(of), &made.pitch) ||
      __builtin_mul_overflow(made.pitch, made.height, &bytes) ||
      __builtin_mul_overflow(bytes, made.depth, &bytes) || bytes > kBytesMax) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  made.bytes.resize(bytes);
  *out = mint_as<CUarray>(driver_abi::HandleKind::kArray);
  const std::lock_guard lock(arrays().mutex);
  arrays().all[*out] = std::move(made);
  return CUDA_SUCCESS;
}

}  // namespace

std::optional<ArrayMemory> array_memory(CUarray array) {
  const std::lock_guard lock(arrays().mutex);
  const auto found = arrays().all.find(array);
  if (found == arrays().all.end()) return std::nullopt;
  Stored& stored = found->second;
  return ArrayMemory{stored.bytes.data(), stored.pitch, stored.height, stored.depth};
}

namespace api {

CUresult cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  if (pHandle == nullptr || pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR full{};
  full.Width = pAllocateArray->Width;
  full.Height = pAllocateArray->Height;
  full.Format = pAllocateArray->Format;
  full.NumChannels = pAllocateArray->NumChannels;
  return create(pHandle, full);
}

CUresult cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  if (pHandle == nullptr || pAllocateArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return create(pHandle, *pAllocateArray);
}

CUresult cuArrayDestroy(CUarray hArray) {
  const std::lock_guard lock(arrays().mutex);
  arrays().all.erase(hArray);
  return CUDA_SUCCESS;
}

}  // namespace api
}  // namespace gpurun::null_device
