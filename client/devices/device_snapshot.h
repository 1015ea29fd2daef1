// DeviceSnapshot: all that a program may ask about the session's devices. The server sends it once.
// The attributes are masked (client/devices/device_attribute_mask.h). CUDA_VISIBLE_DEVICES filters
// and orders the devices. Immutable. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "client/devices/device_attribute_mask.h"

namespace gpurun::client {

using Uuid = std::array<std::uint8_t, 16>;

struct Device {
  int server_ordinal = 0;
  std::string name;
  Uuid uuid{};
  Uuid uuid_v2{};
  std::uint64_t total_memory_bytes = 0;
  std::string pci_bus_id;
  // By CUdevice_attribute. Empty: the driver does not know the attribute.
  std::vector<std::optional<int>> attributes;
  // The limits that each launch is checked against, from `attributes`. 0: unknown.
  struct LaunchBounds {
    std::array<int, 3> grid{};
    std::array<int, 3> block{};
    int threads = 0;
  };
  LaunchBounds launch_bounds;
  // The compute capability that NVIDIA's math libraries get, as major * 10 + minor. 0: the same as
  // other callers.
  int library_capability = 0;

  // Returns 0 when the value is unknown.
  int attribute(int id) const;
};

class DeviceSnapshot {
 public:
  // `visible` is the value of CUDA_VISIBLE_DEVICES, or nullptr when it is not set. kProtocol: the
  // message is not a snapshot.
  static Result<DeviceSnapshot> parse(ByteView message, const char* visible,
                                      SharedPages shared = {});

  int driver_version() const { return driver_version_; }
  // The release as NVML reports it: "580.95.05". If the server gives none, a likely one.
  const std::string& driver_release() const { return driver_release_; }
  bool emulated() const { return emulated_; }
  // The devices that the program sees: ordinals 0 to count - 1.
  int device_count() const { return static_cast<int>(devices_.size()); }
  // Returns nullptr when no device has this ordinal.
  const Device* device(int ordinal) const;
  // Returns the program's ordinal of a server's device, or -1 when the device is not visible.
  int ordinal_of_server(int server_ordinal) const;
  bool can_access_peer(int ordinal, int other) const;
  std::optional<int> peer_attribute(int ordinal, int other, int id) const;
  // How far two devices are apart on the server, as nvmlGpuTopologyLevel_t. A device is 0 from
  // itself. Nothing: unknown, or no such device.
  std::optional<int> topology_level(int ordinal, int other) const;

 private:
  struct Peer {
    int device;
    int other;
    bool can_access;
    std::vector<std::pair<int, int>> attributes;
    std::uint8_t topology;  // As on the wire.
  };
  const Peer* peer(int ordinal, int other) const;

  int driver_version_ = 0;
  std::string driver_release_;
  bool emulated_ = false;
  std::vector<Device> devices_;
  std::vector<Peer> peers_;
};

}  // namespace gpurun::client
