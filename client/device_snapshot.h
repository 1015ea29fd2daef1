// DeviceSnapshot: everything that a program may ask about the session's devices, as the server told
// it once, masked (client/device_attribute_mask.h), filtered and ordered by CUDA_VISIBLE_DEVICES.
// Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace gpurun::client {

using Uuid = std::array<std::uint8_t, 16>;

struct Device {
  int server_ordinal = 0;
  std::string name;
  Uuid uuid{};
  Uuid uuid_v2{};
  std::uint64_t total_memory_bytes = 0;
  std::string pci_bus_id;
  // By CUdevice_attribute; empty: the driver does not know it.
  std::vector<std::optional<int>> attributes;
  // What each launch is checked against, from `attributes`; 0: unknown.
  struct LaunchBounds {
    std::array<int, 3> grid{};
    std::array<int, 3> block{};
    int threads = 0;
  };
  LaunchBounds launch_bounds;
  int library_capability = 0;  // Major * 10 + minor for NVIDIA's math libraries; 0: as everybody.

  // 0 when unknown.
  int attribute(int id) const;
};

class DeviceSnapshot {
 public:
  // `visible` is the value of CUDA_VISIBLE_DEVICES, nullptr when it is not set. kProtocol: not a
  // snapshot.
  static Result<DeviceSnapshot> parse(ByteView message, const char* visible);

  int driver_version() const { return driver_version_; }
  // As NVML tells it: "580.95.05". A likely one where the server does not say.
  const std::string& driver_release() const { return driver_release_; }
  bool emulated() const { return emulated_; }
  // What the program sees: ordinals 0 to count - 1.
  int device_count() const { return static_cast<int>(devices_.size()); }
  // nullptr when `ordinal` names no device.
  const Device* device(int ordinal) const;
  // The program's ordinal of a server's device, -1 when it is not visible.
  int ordinal_of_server(int server_ordinal) const;
  bool can_access_peer(int ordinal, int other) const;
  std::optional<int> peer_attribute(int ordinal, int other, int id) const;

 private:
  struct Peer {
    int device;
    int other;
    bool can_access;
    std::vector<std::pair<int, int>> attributes;
  };
  const Peer* peer(int ordinal, int other) const;

  int driver_version_ = 0;
  std::string driver_release_;
  bool emulated_ = false;
  std::vector<Device> devices_;
  std::vector<Peer> peers_;
};

}  // namespace gpurun::client
