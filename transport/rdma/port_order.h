// Port order: which port comes first, where several lead to the peer.
//
// The ports that somebody has named come first, in that order. Then the nearest one comes first:
// the distance to the session's GPUs counts at a server, and the NUMA node of the process at a
// client.
#pragma once

#include <string>
#include <vector>

#include "base/pci_devices.h"
#include "base/system_files.h"
#include "transport/rdma/allowed_ports.h"

namespace gpurun::transport::rdma {

// The place in this machine to which a session's ports should be near.
struct NearTo {
  std::vector<PciDevice> gpus = {};
  int node = -1;  // NUMA node of the process, where there are no GPUs. -1: unknown.
  SystemFiles files = SystemFiles();
};

struct PortPlace {
  std::size_t order = 0;   // Its place among the named ones. All others come behind these.
  bool named = false;      // It is one of these.
  unsigned steps = 0;      // Its distance, as Distance. Without facts that of the farthest.
  std::string where = {};  // For people: "PIX to the GPU". Empty: nothing is known.
};

// `device`: "mlx5_0". `port`: "mlx5_0:1".
PortPlace place_of(const std::string& device, const std::string& port, const AllowedPorts& allowed,
                   const NearTo& near);

// Why `chosen` comes before `others`, all of which lead to the peer. Empty: nothing prefers it.
std::string why_first(const PortPlace& chosen, const std::vector<PortPlace>& others);

}  // namespace gpurun::transport::rdma
