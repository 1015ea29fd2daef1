// DeviceSnapshot: parses the message once into plain tables.
#include "client/devices/device_snapshot.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/driver_release.h"
#include "driver_abi/semantics/visible_devices.h"
#include "protocol/calls/snapshot.capnp.h"

namespace gpurun::client {
namespace {

constexpr unsigned kDevicesMax = 64;
constexpr int kTopologyLevelMax = 50;  // NVML_TOPOLOGY_SYSTEM.

Uuid uuid_from(capnp::Data::Reader data) {
  Uuid uuid{};
  std::copy_n(data.begin(), std::min<std::size_t>(data.size(), uuid.size()), uuid.begin());
  return uuid;
}

Device parse_device(protocol::wire::Device::Reader in, int server_ordinal, SharedPages shared) {
  Device device;
  device.server_ordinal = server_ordinal;
  device.name = in.getName().cStr();
  device.uuid = uuid_from(in.getUuid());
  device.uuid_v2 = in.hasUuidV2() ? uuid_from(in.getUuidV2()) : device.uuid;
  device.total_memory_bytes = in.getTotalMemoryBytes();
  device.pci_bus_id = in.getPciBusId().cStr();
  device.library_capability = in.getLibraryCapability();
  device.attributes.resize(CU_DEVICE_ATTRIBUTE_MAX);
  for (const auto attribute : in.getAttributes()) {
    const int id = attribute.getId();
    if (id <= 0 || id >= CU_DEVICE_ATTRIBUTE_MAX) continue;
    const MaskedAttribute* masked = masked_attribute(id, shared);
    device.attributes[static_cast<std::size_t>(id)] =
        masked == nullptr ? attribute.getValue()
                          : masked->value | (attribute.getValue() & masked->kept);
  }
  device.launch_bounds = {{device.attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
                           device.attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                           device.attribute(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)},
                          {device.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
                           device.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                           device.attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)},
                          device.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)};
  return device;
}

}  // namespace

int Device::attribute(int id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= attributes.size()) return 0;
  return attributes[static_cast<std::size_t>(id)].value_or(0);
}

Result<DeviceSnapshot> DeviceSnapshot::parse(ByteView message, const char* visible,
                                             SharedPages shared) {
  std::vector<std::uint64_t> words((message.size() + 7) / 8);
  if (!message.empty()) std::memcpy(words.data(), message.data(), message.size());
  DeviceSnapshot result;
  // Lists of nothing, or one list in many places, would make a few bytes a long message.
  capnp::ReaderOptions bounds;
  bounds.traversalLimitInWords = 64 + 4 * words.size();
  bounds.nestingLimit = 8;
  try {
    capnp::FlatArrayMessageReader reader(
        kj::arrayPtr(reinterpret_cast<const capnp::word*>(words.data()), words.size()), bounds);
    const auto snapshot = reader.getRoot<protocol::wire::Snapshot>();
    result.driver_version_ = snapshot.getDriverVersion();
    result.emulated_ = snapshot.getEmulated();
    const std::string_view release(snapshot.getDriverRelease().cStr(),
                                   snapshot.getDriverRelease().size());
    result.driver_release_ = driver_abi::is_driver_release(release)
                                 ? release
                                 : driver_abi::driver_release(result.driver_version_);
    if (snapshot.getDevices().size() > kDevicesMax) {
      return Status(Code::kProtocol, "snapshot: too many devices");
    }
    std::vector<Device> all;
    for (const auto device : snapshot.getDevices()) {
      all.push_back(parse_device(device, static_cast<int>(all.size()), shared));
    }
    std::vector<driver_abi::DeviceUuid> uuids;
    for (const Device& device : all) uuids.push_back(device.uuid);
    for (const int ordinal : driver_abi::visible_devices(visible, uuids)) {
      result.devices_.push_back(all[static_cast<std::size_t>(ordinal)]);
    }
    for (const auto in : snapshot.getPeers()) {
      Peer peer{in.getDevice(), in.getOther(), in.getCanAccess(), {}, in.getTopology()};
      for (const auto attribute : in.getAttributes()) {
        peer.attributes.emplace_back(attribute.getId(), attribute.getValue());
      }
      result.peers_.push_back(std::move(peer));
    }
  } catch (...) {
    return Status(Code::kProtocol, "snapshot: malformed");
  }
  return result;
}

const Device* DeviceSnapshot::device(int ordinal) const {
  if (ordinal < 0 || ordinal >= device_count()) return nullptr;
  return &devices_[static_cast<std::size_t>(ordinal)];
}

int DeviceSnapshot::ordinal_of_server(int server_ordinal) const {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].server_ordinal == server_ordinal) return static_cast<int>(i);
  }
  return -1;
}

const DeviceSnapshot::Peer* DeviceSnapshot::peer(int ordinal, int other) const {
  const Device* first = device(ordinal);
  const Device* second = device(other);
  if (first == nullptr || second == nullptr) return nullptr;
  for (const Peer& candidate : peers_) {
    if (candidate.device == first->server_ordinal && candidate.other == second->server_ordinal) {
      return &candidate;
    }
  }
  return nullptr;
}

bool DeviceSnapshot::can_access_peer(int ordinal, int other) const {
  const Peer* found = peer(ordinal, other);
  return found != nullptr && found->can_access;
}

std::optional<int> DeviceSnapshot::peer_attribute(int ordinal, int other, int id) const {
  const Peer* found = peer(ordinal, other);
  if (found == nullptr) return std::nullopt;
  for (const auto& [attribute, value] : found->attributes) {
    if (attribute == id) return value;
  }
  return std::nullopt;
}

std::optional<int> DeviceSnapshot::topology_level(int ordinal, int other) const {
  if (ordinal == other && device(ordinal) != nullptr) return 0;
  const Peer* found = peer(ordinal, other);
  // A level that NVML does not define is unknown.
  const int level = found == nullptr ? -1 : found->topology - 1;
  return level >= 0 && level <= kTopologyLevelMax && level % 10 == 0 ? std::optional<int>(level)
                                                                     : std::nullopt;
}

}  // namespace gpurun::client
