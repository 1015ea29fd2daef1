// Port: a port of an RDMA device, what it can do, and how a connection from there is addressed.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/rdma/allowed_ports.h"
#include "transport/rdma/device.h"
#include "transport/rdma/offer.h"
#include "transport/rdma/port_order.h"

namespace gpurun::transport::rdma {

struct PortGid {
  std::uint8_t index = 0;
  Link link = Link::kRoceV2;
  Gid gid{};
};

// All of it is what the device answers.
struct Port {
  std::shared_ptr<Device> device;
  std::uint8_t number = 1;  // From 1.
  Link link = Link::kRoceV2;
  std::uint16_t lid = 0;  // Of InfiniBand.
  std::uint16_t partition = 0xffff;
  // Of InfiniBand: each packet needs a global header, as with virtual functions (SR-IOV).
  bool needs_global = false;
  ibv_mtu mtu = IBV_MTU_1024;
  std::vector<PortGid> gids;
  std::uint8_t gid_index = 0;  // The chosen one, as the next and `link`.
  Gid gid{};
  PacketClass packets;
  std::uint32_t message_bytes_max = 0;
  std::uint32_t requests_max = 0;     // Of a queue pair, in each direction.
  std::uint32_t completions_max = 0;  // Of a completion queue.
  PortPlace place;
  std::string why_first;  // Of a chosen port, for people: why it comes before others. May be empty.
  // The device writes remote memory, and reports such a write with its immediate (probe.h).
  bool writes = false;
  // Reads of remote memory that a queue pair serves, and makes, at once. 0: the device reads none.
  std::uint8_t reads = 0;

  // "mlx5_0:1"
  std::string name() const { return device->name() + (":" + std::to_string(number)); }
};

}  // namespace gpurun::transport::rdma
