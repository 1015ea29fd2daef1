// find_ports(): devices in the order of the library, ports and GIDs in the order of the device.
#include "transport/rdma/find_ports.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>

#include "transport/rdma/library.h"
#include "transport/rdma/probe.h"

namespace gpurun::transport::rdma {
namespace {

// GIDs that are asked for at a port. Devices have up to a few hundred entries, most of them empty.
constexpr int kGidsMax = 255;
// The first entry of the table, which holds the default partition (InfiniBand specification,
// 10.9.1.1). RoCE has no other.
constexpr int kPartitionIndex = 0;
// For the probes of all ports. The other end waits for limits::kHandshakeS meanwhile.
constexpr std::chrono::seconds kProbesMax{5};

// Of a queue pair at once. More bring nothing: each moves half a megabyte.
constexpr int kReadsMax = 16;

bool holds(const std::vector<std::string>& list, const std::string& device,
           const std::string& port) {
  return std::any_of(list.begin(), list.end(),
                     [&](const std::string& one) { return one == device || one == port; });
}

std::string why_not_allowed(const Port& port, const AllowedPorts& allowed) {
  const std::string device = port.device->name();
  if (!holds(allowed.trusted, device, port.name()) && !holds(allowed.trusted, "*", "*"))
    return "it is not among the trusted fabrics";
  if (!allowed.restricted.empty() && !holds(allowed.restricted, device, port.name())) {
    return "GPURUN_NET_DEVICES does not name it";
  }
  return {};
}

Link link_of(const ibv_gid_entry& entry) {
  if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) return Link::kRoceV2;
  return entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? Link::kRoceV1 : Link::kInfiniBand;
}

void choose_gid(Port* port, const PortGid& gid) {
  port->gid_index = gid.index;
  port->gid = gid.gid;
  port->link = gid.link;
}

// How well a GID fits, 0 for not at all.
int fit_of(const PortGid& gid, const Gid& local, const Link* link) {
  if (link != nullptr && *link != gid.link) return 0;
  if (gid.link == Link::kInfiniBand) return 1;
  if (gid.gid != local) return 0;
  return gid.link == Link::kRoceV2 ? 3 : 2;
}

// True when `other` reaches the same peers as `first`, as far as this end knows.
bool is_rail_of(const Port& first, const Port& other) {
  constexpr unsigned kKeyMask = 0x7fff;  // The top bit of a P_Key tells full members.
  if (first.link != other.link || ((first.partition ^ other.partition) & kKeyMask) != 0) {
    return false;
  }
  // The first half of a GID is the prefix of its subnet.
  return first.link != Link::kInfiniBand ||
         std::equal(first.gid.begin(), first.gid.begin() + 8, other.gid.begin());
}

// Messages of a queue pair begin with its port.
std::string without_name(const std::string& message, const Port& port) {
  const std::string name = port.name() + ": ";
  return message.compare(0, name.size(), name) == 0 ? message.substr(name.size()) : message;
}

// Chooses the GID that fits best. Returns false, and chooses the first one, if none does.
bool choose_best_gid(Port* port, const Gid& local, const Link* link) {
  int best = 0;
  choose_gid(port, port->gids.front());
  for (const PortGid& gid : port->gids) {
    const int fit = fit_of(gid, local, link);
    if (fit <= best) continue;
    best = fit;
    choose_gid(port, gid);
  }
  return best != 0;
}

// Returns why the port cannot be used. Empty: it can.
std::string look_at(Port* port, const Gid* local, Deadline probes) {
  ibv_context* const context = port->device->context();
  ibv_port_attr about = {};
  if (ibv_query_port(context, port->number, &about) != 0) return "it does not answer";
  if (about.state != IBV_PORT_ACTIVE) return "it is not active";
  port->lid = about.lid;
  port->mtu = about.active_mtu;
  // RoCE always has one. Older ends refuse an offer that says so.
  port->needs_global =
      about.link_layer != IBV_LINK_LAYER_ETHERNET && (about.flags & IBV_QPF_GRH_REQUIRED) != 0;
  port->message_bytes_max = about.max_msg_sz;
  __be16 partition = 0;
  if (ibv_query_pkey(context, port->number, kPartitionIndex, &partition) == 0) {
    port->partition = ntohs(partition);
  }
  port->gids = gids_of(context, port->number, about.gid_tbl_len);
  if (port->gids.empty()) return "it has no GID";
  if (local != nullptr && !choose_best_gid(port, *local, nullptr)) {
    return "none of its GIDs is this machine's address of the connection";
  }
  // The probe takes the first GID, which is local to the link. A route may lead elsewhere from
  // others.
  choose_gid(port, port->gids.front());
  if (probes.passed()) return "the tests of other ports took too long";
  const Result<bool> writes = probe_writes(*port, probes);
  if (!writes.ok()) return without_name(writes.status().message(), *port);
  port->writes = *writes;
  if (!probe_reads(*port, probes)) port->reads = 0;
  return {};
}

void look_at_device(const std::shared_ptr<Device>& device, const AllowedPorts& allowed,
                    const NearTo& near, const Gid* local, Deadline probes, std::vector<Port>* ports,
                    std::vector<Rejected>* rejected) {
  ibv_device_attr about = {};
  if (ibv_query_device(device->context(), &about) != 0) {
    rejected->push_back({device->name(), "it does not answer"});
    return;
  }
  for (unsigned number = 1; number <= about.phys_port_cnt; ++number) {
    Port port;
    port.device = device;
    port.number = static_cast<std::uint8_t>(number);
    port.packets = allowed.packets;
    port.requests_max = static_cast<std::uint32_t>(std::max(about.max_qp_wr, 0));
    port.completions_max = static_cast<std::uint32_t>(std::max(about.max_cqe, 0));
    port.reads = static_cast<std::uint8_t>(
        std::clamp(std::min(about.max_qp_rd_atom, about.max_qp_init_rd_atom), 0, kReadsMax));
    std::string why = why_not_allowed(port, allowed);
    if (why.empty()) why = look_at(&port, local, probes);
    if (why.empty()) {
      port.place = place_of(device->name(), port.name(), allowed, near);
      ports->push_back(std::move(port));
    } else {
      rejected->push_back({port.name(), std::move(why)});
    }
  }
}

}  // namespace

std::vector<PortGid> gids_of(ibv_context* context, std::uint8_t port, int count) {
  std::vector<PortGid> gids;
  for (int index = 0; index < std::min(count, kGidsMax); ++index) {
    ibv_gid_entry entry = {};
    if (ibv_query_gid_ex(context, port, static_cast<std::uint32_t>(index), &entry, 0) != 0) {
      continue;
    }
    PortGid one{static_cast<std::uint8_t>(index), link_of(entry), {}};
    std::memcpy(one.gid.data(), entry.gid.raw, one.gid.size());
    gids.push_back(one);
  }
  return gids;
}

Result<std::vector<Port>> find_ports(const AllowedPorts& allowed, std::vector<Rejected>* rejected,
                                     const NearTo& near, const Gid* local,
                                     const DescriptorPlace& place) {
  GPURUN_RETURN_IF_ERROR(open_library());
  const Deadline probes = Deadline::in(kProbesMax);
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  std::vector<Port> ports;
  for (int i = 0; list != nullptr && i < count; ++i) {
    const std::shared_ptr<Device> device = Device::open(list[i], place);
    if (device == nullptr) {
      rejected->push_back({ibv_get_device_name(list[i]),
                           "it cannot be opened: " + std::generic_category().message(errno)});
      continue;
    }
    look_at_device(device, allowed, near, local, probes, &ports, rejected);
  }
  if (list != nullptr) ibv_free_device_list(list);
  if (!ports.empty()) return ports;
  if (rejected->empty()) return Status(Code::kUnavailable, "this machine has no RDMA device");
  return Status(Code::kUnavailable, rejected->front().name + ": " + rejected->front().reason);
}

Result<Port> choose_port(const std::vector<Port>& ports, const Gid& local, const Link* link,
                         std::size_t rail) {
  // Each port with the best of its GIDs.
  std::vector<std::pair<int, Port>> fitting;
  for (const Port& port : ports) {
    Port chosen = port;
    if (!choose_best_gid(&chosen, local, link)) continue;
    fitting.emplace_back(fit_of({chosen.gid_index, chosen.link, chosen.gid}, local, link), chosen);
  }
  std::stable_sort(fitting.begin(), fitting.end(), [](const auto& one, const auto& other) {
    const PortPlace& ours = one.second.place;
    const PortPlace& theirs = other.second.place;
    return std::make_tuple(ours.order, -one.first, ours.steps) <
           std::make_tuple(theirs.order, -other.first, theirs.steps);
  });
  if (!fitting.empty()) {
    std::vector<PortPlace> others;
    for (const auto& each : fitting) others.push_back(each.second.place);
    std::vector<Port> rails;
    for (const auto& each : fitting) {
      if (is_rail_of(fitting.front().second, each.second)) rails.push_back(each.second);
    }
    const std::size_t number = rail % rails.size();
    Port& chosen = rails[number];
    chosen.why_first =
        number == 0 ? why_first(chosen.place, others)
                    : "rail " + std::to_string(number + 1) + " of " + std::to_string(rails.size());
    return std::move(chosen);
  }
  return Status(Code::kUnavailable, ports.front().name() +
                                        ": none of its GIDs is this machine's address of the "
                                        "connection, or fits the other end's");
}

bool same_fabric(const Port& port, const Offer& theirs) {
  constexpr unsigned kKeyMask = 0x7fff;
  constexpr std::size_t kPrefixBytes = 8;
  if (((port.partition ^ theirs.partition) & kKeyMask) != 0) return false;
  if (static_cast<Link>(theirs.link) != Link::kInfiniBand) return true;
  const Gid& gid = port.gids.front().gid;
  return std::equal(gid.begin(), gid.begin() + kPrefixBytes, theirs.gid.begin());
}

}  // namespace gpurun::transport::rdma
