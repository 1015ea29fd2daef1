// cuGetProcAddress: driver_abi does the search, the addresses are our exported entry points.
#include "driver_abi/semantics/proc_address.h"

#include "driver_abi/row.h"
#include "emulated/api.h"
#include "emulated/settings.h"

namespace gpurun::emulated::api {
namespace {

// The version of the first table. For later functions the settings are read, and only then. A
// program may look up its functions first and then choose its visible devices.
constexpr int kOldestDriver = 13000;

CUresult find(const char* symbol, void** function, int version, cuuint64_t flags,
              CUdriverProcAddressQueryResult* status) {
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  driver_abi::ProcAddress found = driver_abi::find_proc_address(symbol, version, flags);
  if (found.result == CUDA_ERROR_INVALID_VALUE) return CUDA_ERROR_INVALID_VALUE;
  if (found.row != nullptr && found.row->proc_version > kOldestDriver) {
    found = driver_abi::find_proc_address(symbol, version, flags, settings().driver_version);
  }
  *function = found.row == nullptr ? nullptr : entry_point(found.row->opcode);
  if (status != nullptr) *status = static_cast<CUdriverProcAddressQueryResult>(found.status);
  return static_cast<CUresult>(found.result);
}

}  // namespace

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return find(symbol, function, version, flags, nullptr);
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  return find(symbol, function, version, flags, status);
}

}  // namespace gpurun::emulated::api
