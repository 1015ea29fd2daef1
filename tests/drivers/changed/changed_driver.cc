// Changed driver: two drivers for tests, made from the emulated device with another virtual memory
// management. With WITHOUT_VMM the driver has none and reports so, as some real devices do.
// Otherwise it returns reserved addresses that differ from the requested ones, as any driver may
// (manual, cuMemAddressReserve). All other functions come from the linked device.
#include <dlfcn.h>

#include "driver_abi/cuda_abi.h"
#include "tests/drivers/changed/elsewhere.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

template <typename Function>
Function* next(const char* symbol, Function*) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, symbol));
}

}  // namespace

#ifdef WITHOUT_VMM

EXPORTED CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  const CUresult result = next(__func__, &cuDeviceGetAttribute)(value, attribute, device);
  const bool asked = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
  if (result == CUDA_SUCCESS && asked) *value = 0;
  return result;
}

#define UNSUPPORTED(name, parameters) \
  EXPORTED CUresult name parameters { return CUDA_ERROR_NOT_SUPPORTED; }

UNSUPPORTED(cuMemAddressReserve, (CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long))
UNSUPPORTED(cuMemCreate,
            (CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long))
UNSUPPORTED(cuMemGetAllocationGranularity,
            (size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags))

#else

EXPORTED CUresult cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr,
                                      unsigned long long flags) {
  return next(__func__, &cuMemAddressReserve)(out, bytes, alignment, gpurun::kElsewhere, flags);
}

#endif
