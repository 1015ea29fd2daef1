// fabric_ports(): the choice of a session, and then each other port alone.
#include "tools/gpuctl/machine/fabric_ports.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/numa_nodes.h"
#include "base/result.h"
#include "transport/rdma/fabric.h"

namespace gpurun::tools {
namespace {

namespace rdma = transport::rdma;

// Reasons in one line. A machine may have dozens of ports.
constexpr std::size_t kReasonsMax = 8;

std::string joined(const std::vector<rdma::Rejected>& rejected, const std::string& otherwise) {
  std::string text;
  for (std::size_t i = 0; i < std::min(rejected.size(), kReasonsMax); ++i) {
    text += (i == 0 ? "" : "; ") + rejected[i].name + ": " + rejected[i].reason;
  }
  if (rejected.size() > kReasonsMax) text += "; and others";
  return text.empty() ? otherwise : text;
}

// The port that a session takes, and the reason.
Result<std::pair<std::string, std::string>> chosen_port(rdma::Fabric& fabric,
                                                        const rdma::Gid& local) {
  const Result<std::unique_ptr<rdma::FabricEnd>> end = fabric.make_end(local, nullptr);
  if (!end.ok()) return end.status();
  return std::make_pair((*end)->port(), (*end)->why_port());
}

}  // namespace

FabricPorts fabric_ports(const rdma::AllowedPorts& allowed, const rdma::Gid& local) {
  FabricPorts ports;
  std::vector<rdma::Rejected> rejected;
  rdma::NearTo near;
  near.node = node_of_this_thread(near.files);
  const Result<std::unique_ptr<rdma::Fabric>> fabric = rdma::open_fabric(allowed, &rejected, near);
  if (!fabric.ok()) {
    ports.why_none = joined(rejected, fabric.status().message());
    return ports;
  }
  const auto chosen = chosen_port(**fabric, local);
  if (!chosen.ok()) {
    ports.why_none = chosen.status().message();
    return ports;
  }
  ports.usable.push_back(chosen->first);
  ports.why_first = chosen->second;
  for (const std::string& name : (*fabric)->ports()) {
    if (name == chosen->first) continue;
    std::vector<rdma::Rejected> others;
    const Result<std::unique_ptr<rdma::Fabric>> alone =
        rdma::open_fabric({allowed.trusted, {name}, {}, allowed.packets}, &others);
    if (alone.ok() && chosen_port(**alone, local).ok()) ports.usable.push_back(name);
  }
  return ports;
}

}  // namespace gpurun::tools
