// NVML view: the session's devices for NVML, in the server's order and unfiltered. Programs apply
// CUDA_VISIBLE_DEVICES to NVML's numbers themselves.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "client/interpose/call/forward.h"
#include "client/interpose/driver/nvml_view.h"
#include "client/interpose/driver/primary_context.h"
#include "client/interpose/memory/device_windows.h"
#include "client/process/shared_memory_pressure.h"
#include "driver_abi/driver_release.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::NvmlDevice;
using driver_abi::NvmlReturn;

// The session, attached now if necessary. nullptr without one. NVML needs no cuInit.
Process* attached() {
  Process* process = nullptr;
  if (connected(&process) != 0) return nullptr;
  adopt_first_credits(*process);
  return process;
}

const Device* device_at(unsigned index) {
  const Process* process = attached();
  return process == nullptr ? nullptr : process->all_devices->device(static_cast<int>(index));
}

NvmlReturn device(unsigned index, NvmlDevice* out) {
  const Device* device = device_at(index);
  if (device == nullptr) return driver_abi::kNvmlInvalidArgument;
  const auto number = [device](int attribute) {
    return static_cast<std::uint32_t>(device->attribute(attribute));
  };
  NvmlDevice made{};
  std::snprintf(made.name, sizeof made.name, "%s", device->name.c_str());
  std::memcpy(made.uuid, device->uuid.data(), sizeof made.uuid);
  made.pci_domain = number(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID);
  made.pci_bus = number(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID);
  made.pci_device = number(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID);
  made.compute_major = device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  made.compute_minor = device->attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  made.memory_bytes = device->total_memory_bytes;
  *out = made;
  return driver_abi::kNvmlSuccess;
}

using Users = std::array<SharedMemoryPressure::User, 256>;

// The processes of this gpurun that use the device, and the bytes that they have allocated there.
unsigned users_of(const Device& device, Users& users) {
  SharedMemoryPressure* const board = shared_memory_board.load(std::memory_order_acquire);
  if (board == nullptr) return 0;
  return board->users(device.server_ordinal, users.data(), static_cast<unsigned>(users.size()));
}

// The driver's answer through this process's own context. 0 without a context.
std::uint64_t used_bytes_told(const Device& device) {
  EntryContext here;
  if (here.enter() != 0) return 0;
  const int ordinal = here.devices().ordinal_of_server(device.server_ordinal);
  if (ordinal < 0 || primary_context(here, ordinal, &here.context) != 0 ||
      !here.context->active.load(std::memory_order_acquire)) {
    return 0;
  }
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  const int result =
      call_row(here, opcode::cuMemGetInfo_v2, here.site(), {}, &free_bytes, &total_bytes);
  return result != 0 || free_bytes > total_bytes ? 0 : total_bytes - free_bytes;
}

// Asks the driver through a context. A process without one adds up what the processes of its gpurun
// have published, because no other process uses the lease.
NvmlReturn used_bytes(unsigned index, std::uint64_t* used) {
  const Device* device = device_at(index);
  if (device == nullptr) return driver_abi::kNvmlInvalidArgument;
  Users users;
  const unsigned count = users_of(*device, users);
  std::uint64_t sum = 0;
  for (unsigned at = 0; at < count; ++at) sum += users[at].bytes;
  *used = std::max(sum, used_bytes_told(*device));
  return driver_abi::kNvmlSuccess;
}

NvmlReturn processes(unsigned index, driver_abi::NvmlProcess* out, unsigned capacity,
                     unsigned* count) {
  const Device* device = device_at(index);
  if (device == nullptr) return driver_abi::kNvmlInvalidArgument;
  Users users;
  const unsigned found = users_of(*device, users);
  for (unsigned at = 0; at < std::min(found, capacity); ++at) {
    out[at] = {users[at].process, users[at].bytes};
  }
  *count = found;
  return driver_abi::kNvmlSuccess;
}

int cuda_version() {
  int version = 0;
  return ::cuDriverGetVersion(&version) == CUDA_SUCCESS ? version : 0;
}

const char* driver_version() {
  const Process* process = attached();
  return process == nullptr ? driver_abi::driver_release(cuda_version()).data()
                            : process->all_devices->driver_release().c_str();
}

bool peer_access(unsigned from, unsigned to) {
  const Process* process = attached();
  return process != nullptr &&
         process->all_devices->can_access_peer(static_cast<int>(from), static_cast<int>(to));
}

int topology_level(unsigned from, unsigned to) {
  const Process* process = attached();
  if (process == nullptr) return -1;
  return process->all_devices->topology_level(static_cast<int>(from), static_cast<int>(to))
      .value_or(-1);
}

constexpr driver_abi::NvmlSource kSource = {
    .open =
        [] {
          return attached() != nullptr ? driver_abi::kNvmlSuccess
                                       : driver_abi::kNvmlDriverNotLoaded;
        },
    .device_count = [] { return static_cast<unsigned>(attached()->all_devices->device_count()); },
    .device = device,
    .used_bytes = used_bytes,
    .driver_version = driver_version,
    .cuda_version = cuda_version,
    .readings = nullptr,
    .processes = processes,
    .peer_access = peer_access,
    .topology_level = topology_level,
};

}  // namespace

constinit const driver_abi::ClientView kClientView = {
    .bytes = sizeof(driver_abi::ClientView),
    .nvml = &kSource,
    .attached = [] { return connected_already() != nullptr; },
};

}  // namespace gpurun::client::interpose
