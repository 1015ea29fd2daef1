// Managed memory: calls about ranges that the client answers alone.
#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"
#include "client/interpose/memory/managed_memory.h"

namespace gpurun::client::interpose::custom {

// The outputs before a wrong attribute are written, as by a driver (emulated/api/memory.cc).
CUresult cuMemRangeGetAttributes(void** data, size_t* sizes, CUmem_range_attribute* attributes,
                                 size_t count, CUdeviceptr address, size_t bytes) {
  EntryContext here;
  if (const int result = here.enter_context(); result != 0) return cuda(result);
  if (data == nullptr || sizes == nullptr || attributes == nullptr || count == 0 ||
      !managed_memory_exists()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    const CUresult result =
        managed_advice().attribute(data[i], sizes[i], attributes[i], address, bytes);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace gpurun::client::interpose::custom
