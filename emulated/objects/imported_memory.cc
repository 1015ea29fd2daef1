// Imported memory: openings are counted by context and handle. The registry knows the addresses.
#include "emulated/objects/imported_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

#include "emulated/objects/device.h"
#include "emulated/objects/memory_registry.h"

namespace gpurun::emulated {
namespace {

constexpr std::uint64_t kPage = 4096;

struct Opening {
  IpcHandle handle;
  std::uint64_t context = 0;
  std::uint64_t span = 0;  // Of addresses, the guard's included.
  int count = 0;
};

struct Openings {
  std::mutex mutex;
  std::map<std::uint64_t, Opening> by_base;  // Guarded by mutex.
};

Openings& openings() {
  static auto* const all = new Openings;
  return *all;
}

const Device* visible(std::uint32_t physical) {
  for (const auto& device : devices()) {
    if (device->physical() == static_cast<int>(physical)) return device.get();
  }
  return nullptr;
}

// 0: it cannot be mapped. An inaccessible page follows, as after the device's own allocations.
std::uint64_t map_file(int file, const IpcHandle& handle, std::uint64_t* span) {
  const std::uint64_t used = (handle.bytes + kPage - 1) / kPage * kPage;
  *span = used + kPage;
  void* const held =
      mmap(nullptr, *span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (held == MAP_FAILED) return 0;
  if (mmap(held, used, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
           static_cast<off_t>(handle.offset)) != MAP_FAILED) {
    return reinterpret_cast<std::uint64_t>(held);
  }
  munmap(held, *span);
  return 0;
}

}  // namespace

CUresult open_imported(const ContextPtr& context, const IpcHandle& handle, CUdeviceptr* address,
                       std::uint64_t pool) {
  if (handle.kind != IpcKind::kMemory || handle.bytes == 0 || handle.offset % kPage != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (handle.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  Openings& all = openings();
  const std::lock_guard lock(all.mutex);
  for (auto& [base, opening] : all.by_base) {
    if (opening.context != context->handle()) continue;
    if (std::memcmp(&opening.handle, &handle, sizeof handle) != 0) continue;
    ++opening.count;
    *address = base;
    return CUDA_SUCCESS;
  }
  const UniqueFd file = open_ipc_file(handle);
  if (!file.valid()) return CUDA_ERROR_INVALID_VALUE;
  const Device* const device = visible(handle.device);
  std::uint64_t span = 0;
  const std::uint64_t base = device == nullptr ? 0 : map_file(file.get(), handle, &span);
  if (base == 0) return CUDA_ERROR_MAP_FAILED;
  MemoryRange range;
  range.base = base;
  range.bytes = handle.bytes;
  range.kind = MemoryKind::kImported;
  range.device = device->ordinal();
  range.context_handle = context->handle();
  range.owner_handle = pool;
  memory_registry().add_device_addresses(base, span);
  memory_registry().add(range);
  all.by_base[base] = {handle, context->handle(), span, 1};
  *address = base;
  return CUDA_SUCCESS;
}

CUresult close_imported(CUdeviceptr address) {
  Openings& all = openings();
  ContextPtr context;
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_base.find(address);
    if (found == all.by_base.end()) return CUDA_ERROR_INVALID_VALUE;
    if (found->second.count > 1) {
      --found->second.count;
      return CUDA_SUCCESS;
    }
    context = handles().find<Context>(found->second.context);
  }
  if (context != nullptr) (void)context->synchronize();
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_base.find(address);
    if (found == all.by_base.end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.count > 0) return CUDA_SUCCESS;  // Opened again meanwhile.
  }
  if (memory_registry().take(address, {MemoryKind::kImported})) unmap_imported(address);
  return CUDA_SUCCESS;
}

void free_imported(CUdeviceptr address) {
  {
    Openings& all = openings();
    const std::lock_guard lock(all.mutex);
    const auto found = all.by_base.find(address);
    if (found == all.by_base.end() || --found->second.count > 0) return;
  }
  if (memory_registry().take(address, {MemoryKind::kImported})) unmap_imported(address);
}

void unmap_imported(std::uint64_t base) {
  Openings& all = openings();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_base.find(base);
  if (found == all.by_base.end()) return;
  memory_registry().remove_device_addresses(base);
  munmap(reinterpret_cast<void*>(base), found->second.span);
  all.by_base.erase(found);
}

}  // namespace gpurun::emulated
