// Port order: places of devices come from sysfs (base/pci_devices.h).
#include "transport/rdma/port_order.h"

#include <algorithm>
#include <optional>

namespace gpurun::transport::rdma {
namespace {

// Sets the distance of a device at `pci`.
void measure(const PciDevice& pci, const NearTo& near, PortPlace* place) {
  if (near.gpus.empty()) {
    if (near.node < 0 || pci.node < 0) return;
    if (pci.node == near.node) place->steps = static_cast<unsigned>(Distance::kNode);
    place->where =
        pci.node == near.node ? "on the NUMA node of the process" : "on another NUMA node";
    return;
  }
  Distance nearest = Distance::kSystem;
  for (const PciDevice& gpu : near.gpus) nearest = std::min(nearest, distance_between(gpu, pci));
  place->steps = static_cast<unsigned>(nearest);
  place->where = std::string(distance_word(nearest)) + " to the GPU";
}

}  // namespace

PortPlace place_of(const std::string& device, const std::string& port, const AllowedPorts& allowed,
                   const NearTo& near) {
  PortPlace place;
  const auto named = std::find_if(
      allowed.order.begin(), allowed.order.end(),
      [&](const std::string& one) { return one == device || one == port || one == "*"; });
  place.order = static_cast<std::size_t>(named - allowed.order.begin());
  place.named = named != allowed.order.end() && *named != "*";
  place.steps = static_cast<unsigned>(Distance::kSystem);
  const auto pci = pci_device_at(near.files, "/sys/class/infiniband/" + device + "/device");
  if (pci) measure(*pci, near, &place);
  return place;
}

std::string why_first(const PortPlace& chosen, const std::vector<PortPlace>& others) {
  const auto any = [&](auto worse) { return std::any_of(others.begin(), others.end(), worse); };
  if (chosen.named && any([&](const PortPlace& one) { return one.order > chosen.order; })) {
    return "named first";
  }
  if (any([&](const PortPlace& one) { return one.steps > chosen.steps; })) return chosen.where;
  return {};
}

}  // namespace gpurun::transport::rdma
