// CudaDriver: opens the driver and resolves the whole table once, so that dispatch is an array
// look-up.
#include "server/driver/cuda_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "driver_abi/client_marker.h"
#include "driver_abi/error_codes.h"

namespace gpurun::server {
namespace {

// CUDA 12.4 brought the calls that report the layout of a kernel's parameters (cuda.h of 12.4,
// cuKernelGetParamInfo). Launches need it.
constexpr int kReportsParameters = 12040;

// Our client library answers this table. As a driver it would forward to itself without end.
bool is_our_client(void* library) {
  auto* get_export_table = reinterpret_cast<CUresult (*)(const void**, const CUuuid*)>(
      dlsym(library, "cuGetExportTable"));
  if (get_export_table == nullptr) return false;
  CUuuid uuid;
  std::memcpy(&uuid, driver_abi::kClientMarker.data(), sizeof uuid);
  const void* table = nullptr;
  return get_export_table(&table, &uuid) == CUDA_SUCCESS && table != nullptr;
}

}  // namespace

CudaDriver::CudaDriver(std::string path, void* library)
    : path_(std::move(path)), library_(library) {
  const auto rows = driver_abi::rows();
  std::uint16_t last = 0;
  for (const driver_abi::Row& row : rows) last = std::max(last, row.opcode);
  functions_.resize(std::size_t{last} + 1);
  for (const driver_abi::Row& row : rows) {
    functions_[row.opcode] = dlsym(library_, row.symbol);
  }
}

Result<std::unique_ptr<CudaDriver>> CudaDriver::open(const std::string& path) {
  if (path.empty() || path.front() != '/') {
    return Status(Code::kInvalidArgument, "the driver's path " + path + " is not absolute");
  }
  // Local and deep, so that neither we nor the driver's libraries bind to the other's symbols.
  int mode = RTLD_NOW | RTLD_LOCAL;
#if !defined(GPURUN_ASAN) && !defined(GPURUN_TSAN)  // The sanitizers refuse it.
  mode |= RTLD_DEEPBIND;
#endif
  void* library = dlopen(path.c_str(), mode);
  if (library == nullptr) {
    const char* reason = dlerror();
    return Status(Code::kUnavailable, reason == nullptr ? path + ": cannot be opened" : reason);
  }
  if (is_our_client(library)) {
    return Status(Code::kInvalidArgument, path + " is gpurun's own client library, not a driver");
  }
  if (dlsym(library, "cuInit") == nullptr) {
    return Status(Code::kInvalidArgument, path + " is not a CUDA driver: it has no cuInit");
  }
  return std::unique_ptr<CudaDriver>(new CudaDriver(path, library));
}

Status CudaDriver::initialize() {
  CUresult result = GPURUN_DRIVER(*this, cuInit, 0U);
  if (result != CUDA_SUCCESS) {
    const char* name = driver_abi::error_name(result);
    return Status::cuda(result, path_ + ": cuInit failed: " + std::to_string(result) +
                                    (name == nullptr ? "" : std::string(", ") + name));
  }
  result = GPURUN_DRIVER(*this, cuDriverGetVersion, &version_);
  if (result != CUDA_SUCCESS) return Status::cuda(result, path_ + ": no version");
  // An emulated device of an older version reports it all the same.
  if (version_ < kReportsParameters && dlsym(library_, "cuKernelGetParamInfo") == nullptr) {
    return Status(Code::kUnavailable,
                  path_ + " is a driver for CUDA " + std::to_string(version_ / 1000) + "." +
                      std::to_string(version_ % 1000 / 10) +
                      "; gpurun needs one for CUDA 12.4 or newer, because older drivers do not "
                      "report the parameters of kernels. Install driver 550 or later");
  }
  return Status();
}

void* CudaDriver::function(std::uint16_t opcode) const noexcept {
  return opcode < functions_.size() ? functions_[opcode] : nullptr;
}

void* CudaDriver::symbol_address(const char* symbol) const noexcept {
  // Every name that we call is a row.
  const driver_abi::Row* row = driver_abi::find_row(symbol);
  return row == nullptr ? dlsym(library_, symbol) : function(row->opcode);
}

}  // namespace gpurun::server
