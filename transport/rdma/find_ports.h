// find_ports(): the ports of this machine that reach a peer.
#pragma once

#include <vector>

#include "base/result.h"
#include "transport/rdma/allowed_ports.h"
#include "transport/rdma/port.h"

namespace gpurun::transport::rdma {

// Finds the ports that reach a peer from the address `local`, best first. A port of Ethernet needs
// a GID that is that address. RoCE v2 comes before v1, and an active port of InfiniBand last. Every
// port that is left out is added to `rejected`.
//   kUnavailable  no port can be used. The message names the first reason.
Result<std::vector<Port>> find_ports(const Gid& local, const AllowedPorts& allowed,
                                     std::vector<Rejected>* rejected);

}  // namespace gpurun::transport::rdma
