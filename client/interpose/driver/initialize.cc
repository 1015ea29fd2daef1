// Initialization, version, error names and entry points: what a program asks before anything else.
#include <algorithm>

#include "client/interpose/custom.h"
#include "client/interpose/forward.h"
#include "driver_abi/error_codes.h"
#include "driver_abi/proc_address.h"

namespace gpurun::client::interpose::custom {

CUresult cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Process* process = nullptr;
  if (const int result = connected(&process); result != 0) return cuda(result);
  // With no device CUDA's runtime wants this answer, not a count of 0 (measured).
  if (process->devices->device_count() == 0) return CUDA_ERROR_NO_DEVICE;
  set_initialized();
  return CUDA_SUCCESS;
}

// Allowed before cuInit. Never more than the table covers: the runtime and the math libraries call
// what is new in the version that they are told.
CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Process* process = nullptr;
  const int result = connected(&process);
  // Where there is no device, the runtime first asks for the version and then why.
  if (result != 0 && result != CUDA_ERROR_NO_DEVICE) return cuda(result);
  const int theirs = result == 0 ? process->devices->driver_version() : CUDA_VERSION;
  *version = std::min(theirs, CUDA_VERSION);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return driver_abi::get_error_name(error, text);
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return driver_abi::get_error_string(error, text);
}

CUresult cuGetProcAddress_v2(const char* symbol, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status) {
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const driver_abi::ProcAddress found = driver_abi::find_proc_address(symbol, version, flags);
  if (found.result == CUDA_ERROR_INVALID_VALUE) return CUDA_ERROR_INVALID_VALUE;
  if (status != nullptr) *status = static_cast<CUdriverProcAddressQueryResult>(found.status);
  *function = found.row == nullptr ? nullptr : entry_point(found.row->opcode);
  return cuda(found.result);
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return custom::cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // namespace gpurun::client::interpose::custom
