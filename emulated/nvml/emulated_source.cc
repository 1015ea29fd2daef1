// NVML of the emulated device: the settings, and the memory that processes use of it.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/driver_release.h"
#include "driver_abi/emulated_view.h"
#include "driver_abi/nvml_source.h"
#include "emulated/device_identity.h"
#include "emulated/memory_ledger.h"
#include "emulated/settings.h"

namespace gpurun::driver_abi {
namespace {

using emulated::settings;

// NVML shows every device, also those that CUDA_VISIBLE_DEVICES hides, as on a real machine.
unsigned device_count() { return static_cast<unsigned>(settings().devices); }

NvmlReturn device(unsigned index, NvmlDevice* device) {
  NvmlDevice made{};
  const int physical = static_cast<int>(index);
  std::snprintf(made.name, sizeof made.name, "%s", emulated::kDeviceName);
  const auto uuid = emulated::device_uuid(physical);
  std::memcpy(made.uuid, uuid.data(), sizeof made.uuid);
  made.pci_bus = static_cast<std::uint32_t>(emulated::device_pci_bus(physical));
  made.compute_major = settings().capability / 10;
  made.compute_minor = settings().capability % 10;
  made.memory_bytes = settings().memory_bytes;
  *device = made;
  return kNvmlSuccess;
}

// The table in which the emulated libcuda.so.1 describes itself, if this process has loaded it.
const EmulatedView* loaded_view() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  using GetTable = CUresult (*)(const void**, const CUuuid*);
  const auto get = reinterpret_cast<GetTable>(dlsym(library, "cuGetExportTable"));
  const void* table = nullptr;
  CUuuid id;
  std::memcpy(id.bytes, kEmulatedMarker.data(), sizeof id.bytes);
  if (get == nullptr || get(&table, &id) != CUDA_SUCCESS) table = nullptr;
  dlclose(library);  // It is never unloaded.
  const auto* view = static_cast<const EmulatedView*>(table);
  return view != nullptr && view->bytes >= sizeof(EmulatedView) ? view : nullptr;
}

// Without a ledger every process has a device of its own, and other processes use nothing of it.
// With a ledger it counts what they use. Only this process's libcuda.so.1 knows what this process
// uses.
NvmlReturn used_bytes(unsigned index, std::uint64_t* used) {
  *used = 0;
  if (const EmulatedView* view = loaded_view()) {
    *used = view->used_bytes(static_cast<int>(index));
    return kNvmlSuccess;
  }
  const auto visible = emulated::visible_physical_devices();
  const auto found = std::find(visible.begin(), visible.end(), static_cast<int>(index));
  if (found == visible.end()) return kNvmlSuccess;
  const emulated::MemoryLedger others(
      emulated::ledger_file(static_cast<int>(found - visible.begin())), settings().memory_bytes);
  *used = others.bytes_total() - others.bytes_free();
  return kNvmlSuccess;
}

const char* driver_version() { return driver_release(settings().driver_version).data(); }

constexpr NvmlSource kSource = {
    .open = [] { return settings().devices > 0 ? kNvmlSuccess : kNvmlDriverNotLoaded; },
    .device_count = device_count,
    .device = device,
    .used_bytes = used_bytes,
    .driver_version = driver_version,
    .cuda_version = [] { return settings().driver_version; },
    .readings = nullptr,
    .processes = nullptr,
    .peer_access = [](unsigned from, unsigned to) { return from != to; },
    .topology_level = nullptr,
};

}  // namespace

const NvmlSource& nvml_source() noexcept { return kSource; }

}  // namespace gpurun::driver_abi
