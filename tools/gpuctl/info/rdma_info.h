// RDMA info: the part of `gpuctl info` about RDMA devices. sysfs has the place, the rate and the
// network device, and the device itself has its limits (transport/rdma/survey.h).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/pci_devices.h"
#include "tools/gpuctl/machine/verbs.h"
#include "transport/rdma/survey.h"

namespace gpurun::tools {

struct RdmaInfo {
  const std::vector<VerbsDevice>& devices;
  const std::vector<VerbsPort>& ports;
  const transport::rdma::Survey& survey;
};

// "0000:3b:00.0, NUMA node 0", "virtual".
std::string place_of(const std::optional<PciDevice>& pci);
nlohmann::json pci_json(const std::optional<PciDevice>& pci);

std::string rdma_text(const RdmaInfo& info);
// Arrays.
nlohmann::json rdma_devices_json(const RdmaInfo& info);
nlohmann::json rdma_ports_json(const RdmaInfo& info);

}  // namespace gpurun::tools
