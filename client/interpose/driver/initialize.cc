// Initialization: cuInit, version, error names and entry points, which a program calls before all
// else.
#include <algorithm>

#include "client/interpose/call/forward.h"
#include "client/interpose/custom.h"
#include "client/interpose/memory/device_windows.h"
#include "driver_abi/error_codes.h"
#include "driver_abi/semantics/proc_address.h"

namespace gpurun::client::interpose {
namespace {

// The driver version of the first table. Every server that accepts a session has at least this.
constexpr int kOldestDriver = 13000;

// The lower of the server's driver and what the table covers. The runtime and the math libraries
// call new functions of the version that they see. Connects, unless an earlier session has told the
// version. Without a server it is the table's version: a failing version, or 0, makes the runtime
// report a driver that is too old. cuInit reports the real failure.
int seen_driver_version() {
  Process* process = nullptr;
  if (last_driver_version() == 0 && connected(&process) == 0) adopt_first_credits(*process);
  const int last = last_driver_version();
  return last == 0 ? CUDA_VERSION : std::min(last, CUDA_VERSION);
}

}  // namespace
}  // namespace gpurun::client::interpose

namespace gpurun::client::interpose::custom {

CUresult cuInit(unsigned int flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (ancestor_initialized()) return CUDA_ERROR_NOT_INITIALIZED;
  Process* process = nullptr;
  if (const int result = connected(&process); result != 0) return cuda(result);
  adopt_first_credits(*process);
  return cuda(initialize(*process));
}

// Allowed before cuInit.
CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = seen_driver_version();
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
  driver_abi::ProcAddress found = driver_abi::find_proc_address(symbol, version, flags);
  if (found.result == CUDA_ERROR_INVALID_VALUE) return CUDA_ERROR_INVALID_VALUE;
  // A new function exists if the server's driver has it. Only then is the server asked, so that a
  // program can look up functions at its start and fork.
  if (found.row != nullptr && found.row->proc_version > kOldestDriver) {
    found = driver_abi::find_proc_address(symbol, version, flags, seen_driver_version());
  }
  if (status != nullptr) *status = static_cast<CUdriverProcAddressQueryResult>(found.status);
  *function = found.row == nullptr ? nullptr : entry_point(found.row->opcode);
  return cuda(found.result);
}

CUresult cuGetProcAddress(const char* symbol, void** function, int version, cuuint64_t flags) {
  return custom::cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // namespace gpurun::client::interpose::custom
