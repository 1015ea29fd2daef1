// ManagedVariables: the mutex is held while the driver looks for a variable, so that its library
// does not end meanwhile.
#include "server/handlers/memory/managed_variables.h"

#include <cstring>
#include <vector>

#include "base/address_parts.h"
#include "driver_abi/cuda_abi.h"
#include "protocol/calls/module_calls.h"
#include "protocol/limits.h"
#include "server/driver/error_numbers.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

bool have_concurrent_access(const CudaDriver& driver) {
  int devices = 0;
  if (GPURUN_DRIVER(driver, cuDeviceGetCount, &devices) != CUDA_SUCCESS) return false;
  for (int device = 0; device < devices; ++device) {
    int has = 0;
    if (GPURUN_DRIVER(driver, cuDeviceGetAttribute, &has,
                      CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device) != CUDA_SUCCESS ||
        has == 0) {
      return false;
    }
  }
  return true;
}

constexpr auto kEndOf = [](const auto& lines) { return lines.end; };

}  // namespace

int ManagedVariables::add(const protocol::ManagedVariable& variable, std::uint64_t library) {
  const std::uint64_t begin = variable.first_line(), end = variable.lines_end();
  for (auto at = first_range_beyond(lines_, begin, kEndOf); at != lines_.end() && at->first < end;
       ++at) {
    if (at->second.library != library) return CUDA_ERROR_NOT_SUPPORTED;
  }
  const std::vector<AddressPart> parts = parts_outside(lines_, begin, end, kEndOf);
  std::uint64_t bytes = 0;
  for (const AddressPart& part : parts) bytes += part.end - part.begin;
  if (lines_.size() + parts.size() > limits::kManagedVariablesMax ||
      bytes > limits::kManagedVariableBytesMax - bytes_) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (const AddressPart& part : parts) {
    if (!arena_.mirror().add(part.begin, part.end - part.begin)) return CUDA_ERROR_OUT_OF_MEMORY;
    lines_[part.begin] = {part.end, library};
    bytes_ += part.end - part.begin;
  }
  return 0;
}

// The memory of a library exists once the library is in at least one context (manual,
// cuLibraryGetManaged). A program may have none yet. Then the primary context of the first device
// is used, which nearly every program has later, and is kept as long as the library.
int ManagedVariables::ask(std::uint64_t library, CUlibrary value, const char* name,
                          CUdeviceptr* address, std::size_t* bytes) {
  constexpr CUdevice kFirst = 0;
  int result = GPURUN_DRIVER(driver_, cuLibraryGetManaged, address, bytes, value, name);
  CUcontext context = nullptr;
  if ((result != CUDA_ERROR_INVALID_CONTEXT && result != CUDA_ERROR_NOT_FOUND) ||
      GPURUN_DRIVER(driver_, cuCtxGetCurrent, &context) != CUDA_SUCCESS || context != nullptr ||
      GPURUN_DRIVER(driver_, cuDevicePrimaryCtxRetain, &context, kFirst) != CUDA_SUCCESS) {
    return result;
  }
  if (GPURUN_DRIVER(driver_, cuCtxSetCurrent, context) == CUDA_SUCCESS) {
    result = GPURUN_DRIVER(driver_, cuLibraryGetManaged, address, bytes, value, name);
    (void)GPURUN_DRIVER(driver_, cuCtxSetCurrent, CUcontext{nullptr});
  }
  if (result != 0 || !keep_context_.insert(library).second) {
    (void)GPURUN_DRIVER(driver_, cuDevicePrimaryCtxRelease_v2, kFirst);
  }
  return result;
}

int ManagedVariables::find(Call& call, std::uint64_t library, const std::string& name,
                           protocol::ManagedVariable* variable) {
  const std::lock_guard lock(mutex_);
  const HandleTable::Found owner = call.handles().find(library, HandleKind::kLibrary);
  if (owner.result != 0) return owner.result;
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  const int result =
      ask(library, reinterpret_cast<CUlibrary>(owner.value), name.c_str(), &address, &bytes);
  if (result != 0) return result;
  *variable = {address, bytes};
  if (!have_concurrent_access(driver_) || !protocol::is_sound(*variable)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return add(*variable, library);
}

std::unique_lock<std::mutex> ManagedVariables::end_library(std::uint64_t library) {
  std::unique_lock lock(mutex_);
  for (auto at = lines_.begin(); at != lines_.end();) {
    if (at->second.library != library) {
      ++at;
      continue;
    }
    arena_.mirror().remove(at->first);
    bytes_ -= at->second.end - at->first;
    at = lines_.erase(at);
  }
  if (keep_context_.erase(library) != 0) {
    (void)GPURUN_DRIVER(driver_, cuDevicePrimaryCtxRelease_v2, CUdevice{0});
  }
  return lock;
}

namespace {

// On a thread that may block, because the driver may have to load the library's code.
int find_variable(Call& call) {
  const Result<protocol::NameRequest> request = protocol::unpack_name_request(call.payload());
  if (!request.ok() || request->handle != 0) return CUDA_ERROR_INVALID_VALUE;
  protocol::ManagedVariable variable;
  const int result = HandlerState::of(call).managed_variables().find(call, request->owner,
                                                                     request->name, &variable);
  if (result == 0) call.set_reply(bytes_of(variable));
  return result;
}

}  // namespace

CallOutcome run_managed_variable(Call& call) {
  if (call.header().form != protocol::Form::kRaw || !call.awaited()) {
    return CallOutcome::done(CUDA_ERROR_INVALID_VALUE);
  }
  return CallOutcome::park(&find_variable);
}

}  // namespace gpurun::server
