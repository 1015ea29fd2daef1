// Snapshot: asks for everything that the driver answers without a context.
#include "server/driver/snapshot.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/pci_devices.h"
#include "driver_abi/driver_release.h"
#include "driver_abi/emulated_view.h"
#include "protocol/calls/snapshot.capnp.h"

namespace gpurun::server {
namespace {

constexpr int kDevicesMax = 64;

using Values = std::vector<std::pair<int, int>>;

void store(capnp::List<protocol::wire::Attribute>::Builder list, const Values& values) {
  for (unsigned i = 0; i < values.size(); ++i) {
    list[i].setId(values[i].first);
    list[i].setValue(values[i].second);
  }
}

void store_device(const CudaDriver& driver, CUdevice device, protocol::wire::Device::Builder out) {
  char text[256] = "";
  if (GPURUN_DRIVER(driver, cuDeviceGetName, text, static_cast<int>(sizeof text - 1), device) ==
      CUDA_SUCCESS) {
    out.setName(text);
  }
  char bus_id[32] = "";
  if (GPURUN_DRIVER(driver, cuDeviceGetPCIBusId, bus_id, static_cast<int>(sizeof bus_id - 1),
                    device) == CUDA_SUCCESS) {
    out.setPciBusId(bus_id);
  }
  CUuuid uuid{};
  (void)GPURUN_DRIVER(driver, cuDeviceGetUuid, &uuid, device);
  out.setUuid(kj::arrayPtr(reinterpret_cast<const kj::byte*>(&uuid), sizeof uuid));
  if (GPURUN_DRIVER(driver, cuDeviceGetUuid_v2, &uuid, device) == CUDA_SUCCESS) {
    out.setUuidV2(kj::arrayPtr(reinterpret_cast<const kj::byte*>(&uuid), sizeof uuid));
  }
  std::size_t bytes = 0;
  (void)GPURUN_DRIVER(driver, cuDeviceTotalMem_v2, &bytes, device);
  out.setTotalMemoryBytes(bytes);
  Values values;
  for (int id = 1; id < CU_DEVICE_ATTRIBUTE_MAX; ++id) {
    int value = 0;
    if (GPURUN_DRIVER(driver, cuDeviceGetAttribute, &value, static_cast<CUdevice_attribute>(id),
                      device) == CUDA_SUCCESS) {
      values.emplace_back(id, value);
    }
  }
  store(out.initAttributes(static_cast<unsigned>(values.size())), values);
}

// The PCI device of a GPU on this machine. Nothing: the driver or the kernel does not show it.
std::optional<PciDevice> pci_device_of(const CudaDriver& driver, CUdevice device,
                                       const SystemFiles& files) {
  char bus_id[32] = "";
  if (GPURUN_DRIVER(driver, cuDeviceGetPCIBusId, bus_id, static_cast<int>(sizeof bus_id - 1),
                    device) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  std::string name = bus_id;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char each) { return static_cast<char>(std::tolower(each)); });
  if (name.find('/') != std::string::npos) return std::nullopt;
  return pci_device_at(files, "/sys/bus/pci/devices/" + name);
}

void store_peer(const CudaDriver& driver, CUdevice device, CUdevice other,
                protocol::wire::Peer::Builder out) {
  out.setDevice(device);
  out.setOther(other);
  int can_access = 0;
  (void)GPURUN_DRIVER(driver, cuDeviceCanAccessPeer, &can_access, device, other);
  out.setCanAccess(can_access != 0);
  Values values;
  for (int id = CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
       id <= CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED; ++id) {
    int value = 0;
    if (GPURUN_DRIVER(driver, cuDeviceGetP2PAttribute, &value,
                      static_cast<CUdevice_P2PAttribute>(id), device, other) == CUDA_SUCCESS) {
      values.emplace_back(id, value);
    }
  }
  store(out.initAttributes(static_cast<unsigned>(values.size())), values);
}

// The release of NVIDIA's kernel module. "" if it is not loaded.
std::string loaded_release() {
  std::string release;
  std::ifstream("/sys/module/nvidia/version") >> release;
  return driver_abi::is_driver_release(release) ? release : std::string();
}

}  // namespace

const driver_abi::EmulatedView* emulated_view(const CudaDriver& driver) {
  CUuuid uuid;
  std::memcpy(&uuid, driver_abi::kEmulatedMarker.data(), sizeof uuid);
  const void* table = nullptr;
  if (GPURUN_DRIVER(driver, cuGetExportTable, &table, &uuid) != CUDA_SUCCESS) return nullptr;
  const auto* view = static_cast<const driver_abi::EmulatedView*>(table);
  return view != nullptr && view->bytes >= sizeof(driver_abi::EmulatedView) ? view : nullptr;
}

std::vector<PciDevice> gpu_places(const CudaDriver& driver) {
  const SystemFiles files;
  std::vector<PciDevice> places;
  int count = 0;
  if (is_emulated(driver) || GPURUN_DRIVER(driver, cuDeviceGetCount, &count) != CUDA_SUCCESS) {
    return places;
  }
  for (int ordinal = 0; ordinal < std::min(count, kDevicesMax); ++ordinal) {
    if (auto place = pci_device_of(driver, ordinal, files)) places.push_back(*std::move(place));
  }
  return places;
}

bool is_emulated(const CudaDriver& driver) { return emulated_view(driver) != nullptr; }

Result<Bytes> take_snapshot(const CudaDriver& driver, const SystemFiles& files) {
  int device_count = 0;
  const CUresult counted = GPURUN_DRIVER(driver, cuDeviceGetCount, &device_count);
  if (counted != CUDA_SUCCESS) return Status::cuda(counted, "cuDeviceGetCount failed");
  device_count = std::clamp(device_count, 0, kDevicesMax);

  capnp::MallocMessageBuilder builder;
  auto snapshot = builder.initRoot<protocol::wire::Snapshot>();
  snapshot.setDriverVersion(driver.version());
  const driver_abi::EmulatedView* emulated = emulated_view(driver);
  snapshot.setEmulated(emulated != nullptr);
  snapshot.setDriverRelease(emulated != nullptr
                                ? std::string(driver_abi::driver_release(driver.version()))
                                : loaded_release());
  auto devices = snapshot.initDevices(static_cast<unsigned>(device_count));
  auto peers =
      snapshot.initPeers(static_cast<unsigned>(device_count * std::max(0, device_count - 1)));
  unsigned peer = 0;
  // Emulated devices have invented addresses.
  std::vector<std::optional<PciDevice>> places;
  for (int ordinal = 0; ordinal < device_count; ++ordinal) {
    places.push_back(emulated != nullptr ? std::nullopt : pci_device_of(driver, ordinal, files));
  }
  for (int ordinal = 0; ordinal < device_count; ++ordinal) {
    CUdevice device = 0;
    if (GPURUN_DRIVER(driver, cuDeviceGet, &device, ordinal) != CUDA_SUCCESS) device = ordinal;
    auto out = devices[static_cast<unsigned>(ordinal)];
    store_device(driver, device, out);
    if (emulated != nullptr) out.setLibraryCapability(emulated->library_capability());
    for (int other = 0; other < device_count; ++other) {
      if (other == ordinal) continue;
      const auto& near = places[static_cast<std::size_t>(ordinal)];
      const auto& far = places[static_cast<std::size_t>(other)];
      if (near && far) {
        peers[peer].setTopology(
            static_cast<std::uint8_t>(1 + nvml_level(distance_between(*near, *far))));
      }
      store_peer(driver, device, other, peers[peer++]);
    }
  }
  const auto flat = capnp::messageToFlatArray(builder);
  const auto bytes = flat.asBytes();
  const ByteView view = byte_view(bytes.begin(), bytes.size());
  return Bytes(view.begin(), view.end());
}

}  // namespace gpurun::server
