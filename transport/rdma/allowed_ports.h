// Allowed ports: which ports of RDMA devices a connection may use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "transport/rejected.h"

namespace gpurun::transport::rdma {

// An address of IPv6, in which one of IPv4 is mapped (::ffff:192.0.2.1).
using Gid = std::array<std::uint8_t, 16>;

using transport::Rejected;

// How switches treat the packets that an end sends. Each end chooses its own.
struct PacketClass {
  std::uint8_t service_level = 0;  // 0 to 15. RoCE: the priority of the VLAN's tag.
  std::uint8_t traffic_class = 0;  // Of the global header. RoCE v2: four times the DSCP.
};
inline constexpr unsigned kServiceLevelMax = 15;
inline constexpr unsigned kTrafficClassMax = 255;

// Which ports may be used: "mlx5_0" for a device, "mlx5_0:1" for a port.
struct AllowedPorts {
  // The payload is not encrypted, so a port must be one of these. "*": all are.
  std::vector<std::string> trusted;
  // GPURUN_NET_DEVICES: a port must also be one of these. Empty: all are.
  std::vector<std::string> restricted;
  // Ports that come first, in this order. Then the nearest ones do (port_order.h).
  std::vector<std::string> order = {};
  PacketClass packets = {};
};

// In each list.
inline constexpr std::size_t kPortsMax = 64;

// True for "mlx5_0", "mlx5_0:1" and "*", as far as the form goes.
bool is_port_name(std::string_view name);

}  // namespace gpurun::transport::rdma
