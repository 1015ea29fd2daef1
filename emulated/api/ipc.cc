// Memory and events that processes share (cuIpc...). The codes are from the manual, section "Memory
// Management". A handle of the process itself gets INVALID_CONTEXT, as from NVIDIA's driver.
#include <unistd.h>

#include <cstring>

#include "emulated/api/entry.h"
#include "emulated/api/ipc.h"
#include "emulated/objects/event.h"
#include "emulated/objects/imported_memory.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated {
namespace {

template <typename Handle>
IpcHandle taken_from(const Handle& handle) {
  static_assert(sizeof(Handle) == sizeof(IpcHandle));
  IpcHandle taken;
  std::memcpy(&taken, &handle, sizeof taken);
  return taken;
}

// The device of a handle. nullptr: there is no such device here.
Device* device_of(const IpcHandle& handle) {
  for (const auto& device : devices()) {
    if (device->physical() == static_cast<int>(handle.device)) return device.get();
  }
  return nullptr;
}

}  // namespace

int ipc_file(const void* bytes) {
  IpcHandle handle;
  std::memcpy(&handle, bytes, sizeof handle);
  if (handle.process != getpid()) return -1;
  // The number of a descriptor of ours, which is still ours unless the program has closed it.
  if (handle.kind == IpcKind::kEvent) return handle.descriptor;
  Device* const device = device_of(handle);
  return device == nullptr ? -1 : device->arena().shared_file();
}

void take_ipc_file(const void* bytes, int file) {
  IpcHandle handle;
  std::memcpy(&handle, bytes, sizeof handle);
  adopt_ipc_file(handle, file);
}

}  // namespace gpurun::emulated

namespace gpurun::emulated::api {

CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  GPURUN_ENTER(context);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto range = memory_registry().find(address);
  if (!range || range->kind != MemoryKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  Device* const device = device_at(range->device);
  IpcHandle handle;
  if (!device->arena().share(range->base, range->bytes, device->physical(), &handle)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::memcpy(out, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  GPURUN_ENTER(context);
  if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return open_imported(context, taken_from(handle), out);
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  return api::cuIpcOpenMemHandle_v2(out, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  GPURUN_ENTER(context);
  return close_imported(address);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* out, CUevent event_handle) {
  GPURUN_ENTER(context);
  const auto event = handles().find<Event>(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  IpcHandle handle;
  // Neither made for other processes, nor another process's.
  if (event->shared() == nullptr || !event->shared()->share(&handle)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  std::memcpy(out, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent* out, CUipcEventHandle given) {
  GPURUN_ENTER(context);
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const IpcHandle handle = taken_from(given);
  if (handle.kind == IpcKind::kEvent && handle.process == getpid()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  auto shared = SharedEvent::open(handle);
  if (shared == nullptr) return CUDA_ERROR_INVALID_VALUE;
  constexpr unsigned kFlags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  const auto event = handles().add(std::make_shared<Event>(context, kFlags, std::move(shared)));
  context->own(*event);
  *out = event->as<CUevent>();
  return CUDA_SUCCESS;
}

}  // namespace gpurun::emulated::api
