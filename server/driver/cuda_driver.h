// CudaDriver: a CUDA driver library that is opened at run time by absolute path: NVIDIA's, the
// emulated device, or a test's. Nothing links it, and the worker refuses our own client library in
// its place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"

namespace gpurun::server {

class CudaDriver {
 public:
  // Opens the library in a scope of its own. kInvalidArgument: the path is not absolute, or is our
  // own client library. kUnavailable: the loader's message. The call does not use CUDA yet.
  static Result<std::unique_ptr<CudaDriver>> open(const std::string& path);

  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;
  // The library stays mapped, because a driver does not survive being unloaded.
  ~CudaDriver() = default;

  // Calls cuInit and reads the version. Once, before anything else. kCuda: the driver's error.
  Status initialize();
  // The result of cuDriverGetVersion. 0 before initialize().
  int version() const { return version_; }
  const std::string& path() const { return path_; }

  // The driver's function for a row. nullptr when the driver has none, because it is older than the
  // table. Any thread.
  void* function(std::uint16_t opcode) const noexcept;
  bool has(std::uint16_t opcode) const noexcept { return function(opcode) != nullptr; }
  // Calls a function by its exported name, typed: driver.call(&cuMemFree_v2, "cuMemFree_v2",
  // address). NOT_FOUND when the driver lacks it.
  template <typename... Parameters, typename... Arguments>
  CUresult call(CUresult (*)(Parameters...), const char* symbol, Arguments... arguments) const {
    auto* entry = reinterpret_cast<CUresult (*)(Parameters...)>(symbol_address(symbol));
    return entry == nullptr ? CUDA_ERROR_NOT_FOUND : entry(static_cast<Parameters>(arguments)...);
  }
  void* symbol_address(const char* symbol) const noexcept;

 private:
  CudaDriver(std::string path, void* library);

  const std::string path_;
  void* const library_;
  std::vector<void*> functions_;  // By opcode.
  int version_ = 0;
};

// GPURUN_DRIVER(driver, cuMemFree_v2, address) is a typed call of the driver's own cuMemFree_v2.
// The name here is only its type, and nothing of that name is linked.
#define GPURUN_DRIVER(driver, name, ...) \
  (driver).call(static_cast<decltype(&::name)>(nullptr), #name __VA_OPT__(, ) __VA_ARGS__)

}  // namespace gpurun::server
