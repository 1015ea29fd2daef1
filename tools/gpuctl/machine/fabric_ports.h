// FabricPorts: the RDMA ports by which sessions from this machine may reach a server. `gpuctl
// netperf`, `info` and `health` use them.
#pragma once

#include <string>
#include <vector>

#include "transport/rdma/allowed_ports.h"

namespace gpurun::tools {

struct FabricPorts {
  std::vector<std::string> usable;  // "mlx5_0:1". The first is the one that a session takes.
  std::string why_none;             // The reasons, if `usable` is empty.
  // Why it takes that one (transport/rdma/port_order.h). Empty: nothing prefers it.
  std::string why_first = {};
};

// Opens the devices of the allowed ports, and makes an end for each port (transport/rdma/fabric.h).
// `local`: this machine's address for the server. Nothing leaves the machine. Blocks up to 4 s for
// each port that is silent.
FabricPorts fabric_ports(const transport::rdma::AllowedPorts& allowed,
                         const transport::rdma::Gid& local);

}  // namespace gpurun::tools
