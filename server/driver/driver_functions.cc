// DriverFunctions: looks up the call path's driver functions by the names that CUDA exports.
#include "server/driver/driver_functions.h"

#include <dlfcn.h>

#include <string>

namespace gpurun::server {
namespace {

// Keeps the first name that the library lacks.
class Lookup {
 public:
  explicit Lookup(void* library) : library_(library) {}

  template <typename Function>
  void find(Function*& into, const char* symbol) {
    into = reinterpret_cast<Function*>(dlsym(library_, symbol));
    if (into == nullptr && missing_.empty()) missing_ = symbol;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

}  // namespace

Result<DriverFunctions> DriverFunctions::from_library(void* library) {
  DriverFunctions driver;
  Lookup in(library);
  in.find(driver.cuInit, "cuInit");
  in.find(driver.cuCtxSetCurrent, "cuCtxSetCurrent");
  in.find(driver.cuCtxSynchronize, "cuCtxSynchronize");
  in.find(driver.cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode");
  in.find(driver.cuStreamCreate, "cuStreamCreate");
  in.find(driver.cuStreamDestroy, "cuStreamDestroy_v2");
  in.find(driver.cuStreamGetFlags, "cuStreamGetFlags");
  in.find(driver.cuStreamGetCtx, "cuStreamGetCtx");
  in.find(driver.cuStreamIsCapturing, "cuStreamIsCapturing");
  in.find(driver.cuStreamSynchronize, "cuStreamSynchronize");
  in.find(driver.cuStreamQuery, "cuStreamQuery");
  in.find(driver.cuStreamWaitEvent, "cuStreamWaitEvent");
  in.find(driver.cuEventCreate, "cuEventCreate");
  in.find(driver.cuEventDestroy, "cuEventDestroy_v2");
  in.find(driver.cuEventRecord, "cuEventRecord");
  in.find(driver.cuEventRecordWithFlags, "cuEventRecordWithFlags");
  in.find(driver.cuEventQuery, "cuEventQuery");
  in.find(driver.cuEventSynchronize, "cuEventSynchronize");
  in.find(driver.cuLaunchKernelEx, "cuLaunchKernelEx");
  in.find(driver.cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
  in.find(driver.cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
  in.find(driver.cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2");
  in.find(driver.cuMemcpy3DAsync, "cuMemcpy3DAsync_v2");
  in.find(driver.cuMemsetD8Async, "cuMemsetD8Async");
  in.find(driver.cuMemsetD16Async, "cuMemsetD16Async");
  in.find(driver.cuMemsetD32Async, "cuMemsetD32Async");
  in.find(driver.cuMemsetD2D8Async, "cuMemsetD2D8Async");
  in.find(driver.cuMemsetD2D16Async, "cuMemsetD2D16Async");
  in.find(driver.cuMemsetD2D32Async, "cuMemsetD2D32Async");
  in.find(driver.cuMemHostAlloc, "cuMemHostAlloc");
  in.find(driver.cuMemFreeHost, "cuMemFreeHost");
  in.find(driver.cuMemHostRegister, "cuMemHostRegister_v2");
  in.find(driver.cuMemHostUnregister, "cuMemHostUnregister");
  if (!in.missing().empty()) {
    return Status(Code::kUnavailable, "the driver lacks " + in.missing());
  }
  return driver;
}

}  // namespace gpurun::server
