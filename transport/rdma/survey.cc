// survey(): facts of each device, and then the decision of find_ports() for each port.
#include "transport/rdma/survey.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

#include "transport/rdma/find_ports.h"
#include "transport/rdma/library.h"

namespace gpurun::transport::rdma {
namespace {

std::uint32_t count_of(int value) { return static_cast<std::uint32_t>(std::max(value, 0)); }

std::string state_of(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "DOWN";
    case IBV_PORT_INIT:
      return "INIT";
    case IBV_PORT_ARMED:
      return "ARMED";
    case IBV_PORT_ACTIVE:
      return "ACTIVE";
    case IBV_PORT_ACTIVE_DEFER:
      return "ACTIVE_DEFER";
    default:
      return "unknown";
  }
}

std::string link_layer_of(std::uint8_t layer) {
  if (layer == IBV_LINK_LAYER_ETHERNET) return "Ethernet";
  return layer == IBV_LINK_LAYER_INFINIBAND ? "InfiniBand" : "unknown";
}

// The widths and speeds of a link are bits (InfiniBand specification, PortInfo).
double gbit_of(std::uint8_t width, std::uint8_t speed) {
  constexpr std::pair<unsigned, double> kLanes[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  constexpr std::pair<unsigned, double> kGbit[] = {{1, 2.5}, {2, 5},   {4, 10},  {8, 10},
                                                   {16, 14}, {32, 25}, {64, 50}, {128, 100}};
  const auto value = [](const auto& table, unsigned bit) {
    const auto* const found = std::find_if(std::begin(table), std::end(table),
                                           [bit](const auto& each) { return each.first == bit; });
    return found == std::end(table) ? 0 : found->second;
  };
  return value(kLanes, width) * value(kGbit, speed);
}

std::string type_of(Link link) {
  if (link == Link::kRoceV2) return "RoCE v2";
  return link == Link::kRoceV1 ? "RoCE v1" : "InfiniBand";
}

SurveyedGid surveyed(const PortGid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.gid.data(), text, sizeof text);
  return {gid.index, type_of(gid.link), text};
}

SurveyedPort port_of(ibv_context* context, unsigned number) {
  SurveyedPort port;
  port.number = number;
  port.link_layer = "unknown";
  ibv_port_attr about = {};
  if (ibv_query_port(context, static_cast<std::uint8_t>(number), &about) != 0) return port;
  port.state = state_of(about.state);
  port.link_layer = link_layer_of(about.link_layer);
  port.packet_bytes = 128U << about.active_mtu;  // enum ibv_mtu: 1 is 256.
  port.gbit = gbit_of(about.active_width, about.active_speed);
  port.lid = about.lid;
  port.message_bytes_max = about.max_msg_sz;
  for (const PortGid& gid :
       gids_of(context, static_cast<std::uint8_t>(number), about.gid_tbl_len)) {
    port.gids.push_back(surveyed(gid));
  }
  return port;
}

// No query answers this. A queue pair is refused that wants more than the device has.
std::optional<std::uint32_t> inline_bytes_of(ibv_context* context) {
  constexpr std::array<std::uint32_t, 7> kTried = {2048, 1024, 512, 256, 128, 64, 0};
  std::optional<std::uint32_t> found;
  ibv_pd* const pd = ibv_alloc_pd(context);
  ibv_cq* const queue = ibv_create_cq(context, 2, nullptr, nullptr, 0);
  for (std::size_t i = 0; pd != nullptr && queue != nullptr && i < kTried.size() && !found; ++i) {
    ibv_qp_init_attr wanted = {};
    wanted.send_cq = wanted.recv_cq = queue;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {1, 1, 1, 1, kTried[i]};
    ibv_qp* const pair = ibv_create_qp(pd, &wanted);
    if (pair == nullptr) continue;
    found = wanted.cap.max_inline_data;
    ibv_destroy_qp(pair);
  }
  if (queue != nullptr) ibv_destroy_cq(queue);
  if (pd != nullptr) ibv_dealloc_pd(pd);
  return found;
}

SurveyedDevice device_of(ibv_device* listed) {
  SurveyedDevice device;
  device.name = ibv_get_device_name(listed);
  const std::unique_ptr<Device> open = Device::open(listed);
  if (open == nullptr) {
    device.why_not = "it cannot be opened: " + std::generic_category().message(errno);
    return device;
  }
  ibv_context* const context = open->context();
  ibv_device_attr_ex extended = {};
  const bool answers = ibv_query_device_ex(context, nullptr, &extended) == 0;
  const ibv_device_attr& about = extended.orig_attr;
  if (!answers) {
    device.why_not = "it does not answer";
    return device;
  }
  device.firmware.assign(about.fw_ver, strnlen(about.fw_ver, sizeof about.fw_ver));
  device.queue_pairs_max = count_of(about.max_qp);
  device.requests_max = count_of(about.max_qp_wr);
  device.completions_max = count_of(about.max_cqe);
  device.pieces_max = count_of(about.max_sge);
  device.region_bytes_max = about.max_mr_size;
  device.inline_bytes_max = inline_bytes_of(context);
  device.pages_on_demand = (extended.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0;
  device.atomics = about.atomic_cap != IBV_ATOMIC_NONE;
  for (unsigned number = 1; number <= about.phys_port_cnt; ++number) {
    device.ports.push_back(port_of(context, number));
  }
  return device;
}

void decide(const AllowedPorts& allowed, std::vector<SurveyedDevice>* devices) {
  std::vector<Rejected> rejected;
  static_cast<void>(find_ports(allowed, &rejected));  // Each reason is in `rejected`.
  for (SurveyedDevice& device : *devices) {
    for (SurveyedPort& port : device.ports) {
      const std::string name = device.name + ":" + std::to_string(port.number);
      for (const Rejected& one : rejected) {
        if (one.name == name || one.name == device.name) port.why_not = one.reason;
      }
    }
  }
}

}  // namespace

Survey survey(const AllowedPorts& allowed) {
  Survey found;
  found.packets = allowed.packets;
  const Status opened = open_library();
  found.library = library_file();
  if (!opened.ok()) {
    found.why_none = opened.message();
    return found;
  }
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  for (int i = 0; list != nullptr && i < count; ++i) found.devices.push_back(device_of(list[i]));
  if (list != nullptr) {
    ibv_free_device_list(list);
  } else {
    found.why_none = "the devices cannot be listed: " + std::generic_category().message(errno);
  }
  decide(allowed, &found.devices);
  return found;
}

}  // namespace gpurun::transport::rdma
