// find_ports(): devices in the order of the library, ports and GIDs in the order of the device.
#include "transport/rdma/find_ports.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
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

struct FoundPort {
  int fit = 0;
  Port port;
};

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

// How well a GID fits, 0 for not at all.
int fit_of(const ibv_gid_entry& entry, const Gid& local) {
  const bool same = std::memcmp(entry.gid.raw, local.data(), local.size()) == 0;
  if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) return same ? 3 : 0;
  if (entry.gid_type == IBV_GID_TYPE_ROCE_V1) return same ? 2 : 0;
  return 1;
}

Link link_of(const ibv_gid_entry& entry) {
  if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) return Link::kRoceV2;
  return entry.gid_type == IBV_GID_TYPE_ROCE_V1 ? Link::kRoceV1 : Link::kInfiniBand;
}

std::string choose_gid(const Gid& local, int count, FoundPort* found) {
  for (int index = 0; index < std::min(count, kGidsMax); ++index) {
    ibv_gid_entry entry = {};
    if (ibv_query_gid_ex(found->port.device->context(), found->port.number,
                         static_cast<std::uint32_t>(index), &entry, 0) != 0) {
      continue;
    }
    const int fit = fit_of(entry, local);
    if (fit <= found->fit) continue;
    found->fit = fit;
    found->port.gid_index = static_cast<std::uint8_t>(index);
    found->port.link = link_of(entry);
    std::memcpy(found->port.gid.data(), entry.gid.raw, found->port.gid.size());
  }
  return found->fit != 0 ? "" : "none of its GIDs is this machine's address of the connection";
}

// Returns why the port cannot be used. Empty: it can.
std::string look_at(const Gid& local, FoundPort* found) {
  Port& port = found->port;
  ibv_context* const context = port.device->context();
  ibv_port_attr about = {};
  if (ibv_query_port(context, port.number, &about) != 0) return "it does not answer";
  if (about.state != IBV_PORT_ACTIVE) return "it is not active";
  port.lid = about.lid;
  port.mtu = about.active_mtu;
  port.message_bytes_max = about.max_msg_sz;
  __be16 partition = 0;
  if (ibv_query_pkey(context, port.number, kPartitionIndex, &partition) == 0) {
    port.partition = ntohs(partition);
  }
  return choose_gid(local, about.gid_tbl_len, found);
}

void look_at_device(const std::shared_ptr<Device>& device, const Gid& local,
                    const AllowedPorts& allowed, std::vector<FoundPort>* found,
                    std::vector<Rejected>* rejected) {
  ibv_device_attr about = {};
  if (ibv_query_device(device->context(), &about) != 0) {
    rejected->push_back({device->name(), "it does not answer"});
    return;
  }
  for (unsigned number = 1; number <= about.phys_port_cnt; ++number) {
    FoundPort one;
    one.port.device = device;
    one.port.number = static_cast<std::uint8_t>(number);
    one.port.requests_max = static_cast<std::uint32_t>(std::max(about.max_qp_wr, 0));
    one.port.completions_max = static_cast<std::uint32_t>(std::max(about.max_cqe, 0));
    std::string why = why_not_allowed(one.port, allowed);
    if (why.empty()) why = look_at(local, &one);
    if (why.empty()) {
      found->push_back(std::move(one));
    } else {
      rejected->push_back({one.port.name(), std::move(why)});
    }
  }
}

// Messages of a queue pair begin with its port.
std::string without_name(const std::string& message, const Port& port) {
  const std::string name = port.name() + ": ";
  return message.compare(0, name.size(), name) == 0 ? message.substr(name.size()) : message;
}

// Takes the ports that pass the probe.
std::vector<Port> probed(std::vector<FoundPort>& found, std::vector<Rejected>* rejected) {
  std::vector<Port> ports;
  for (FoundPort& one : found) {
    const Result<bool> writes = probe_writes(one.port);
    if (!writes.ok()) {
      rejected->push_back({one.port.name(), without_name(writes.status().message(), one.port)});
      continue;
    }
    one.port.writes = *writes;
    ports.push_back(std::move(one.port));
  }
  return ports;
}

}  // namespace

Result<std::vector<Port>> find_ports(const Gid& local, const AllowedPorts& allowed,
                                     std::vector<Rejected>* rejected) {
  GPURUN_RETURN_IF_ERROR(open_library());
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  std::vector<FoundPort> found;
  for (int i = 0; list != nullptr && i < count; ++i) {
    ibv_context* const context = ibv_open_device(list[i]);
    if (context == nullptr) {
      rejected->push_back({ibv_get_device_name(list[i]),
                           "it cannot be opened: " + std::generic_category().message(errno)});
      continue;
    }
    look_at_device(std::make_shared<Device>(context), local, allowed, &found, rejected);
  }
  if (list != nullptr) ibv_free_device_list(list);
  std::stable_sort(found.begin(), found.end(),
                   [](const FoundPort& a, const FoundPort& b) { return a.fit > b.fit; });
  std::vector<Port> ports = probed(found, rejected);
  if (!ports.empty()) return ports;
  if (rejected->empty()) return Status(Code::kUnavailable, "this machine has no RDMA device");
  return Status(Code::kUnavailable, rejected->front().name + ": " + rejected->front().reason);
}

}  // namespace gpurun::transport::rdma
