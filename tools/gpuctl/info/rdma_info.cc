// RDMA info: devices of either source, joined by their names.
#include "tools/gpuctl/info/rdma_info.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace gpurun::tools {
namespace {

namespace rdma = transport::rdma;
using nlohmann::json;

// What both sources have about a device or port. A null pointer: the source does not know it.
struct DeviceFacts {
  std::string name;
  const VerbsDevice* files = nullptr;
  const rdma::SurveyedDevice* answers = nullptr;
};
struct PortFacts {
  std::string name;
  const VerbsPort* files = nullptr;
  const rdma::SurveyedPort* answers = nullptr;
  std::string why_not;
};

template <typename Facts>
Facts* named(std::vector<Facts>* all, const std::string& name) {
  for (Facts& each : *all) {
    if (each.name == name) return &each;
  }
  all->emplace_back();
  all->back().name = name;
  return &all->back();
}

std::vector<DeviceFacts> devices_of(const RdmaInfo& info) {
  std::vector<DeviceFacts> all;
  for (const VerbsDevice& each : info.devices) named(&all, each.name)->files = &each;
  for (const rdma::SurveyedDevice& each : info.survey.devices) {
    named(&all, each.name)->answers = &each;
  }
  return all;
}

bool is_of(const std::string& port, const std::string& device) {
  return port.compare(0, port.rfind(':'), device) == 0;
}

std::vector<PortFacts> ports_of(const RdmaInfo& info) {
  std::vector<PortFacts> all;
  for (const VerbsPort& each : info.ports) {
    PortFacts* const port = named(&all, each.name());
    port->files = &each;
    port->why_not = info.survey.why_none;
    if (port->why_not.empty()) port->why_not = "libibverbs does not list its device";
  }
  for (const rdma::SurveyedDevice& device : info.survey.devices) {
    for (PortFacts& port : all) {
      if (is_of(port.name, device.name)) port.why_not = device.why_not;
    }
    for (const rdma::SurveyedPort& each : device.ports) {
      PortFacts* const port = named(&all, device.name + ":" + std::to_string(each.number));
      port->answers = &each;
      port->why_not = each.why_not;
    }
  }
  return all;
}

std::string limits_text(const rdma::SurveyedDevice& device) {
  if (!device.why_not.empty()) return "    " + printable(device.why_not) + "\n";
  const auto text = [](std::uint64_t value) { return std::to_string(value); };
  std::string all = "    firmware " + printable(device.firmware) +
                    ", queue pairs: " + text(device.queue_pairs_max) +
                    ", requests each: " + text(device.requests_max) +
                    ", completions: " + text(device.completions_max) +
                    "\n    pieces (SGE): " + text(device.pieces_max) + ", inline bytes: " +
                    (device.inline_bytes_max ? text(*device.inline_bytes_max) : "unknown") +
                    ", largest region: ";
  all += device.region_bytes_max == ~std::uint64_t{0}
             ? "unlimited"
             : text(device.region_bytes_max >> 20) + " MiB";
  all += std::string(", on-demand paging (ODP): ") + (device.pages_on_demand ? "yes" : "no") +
         ", atomics: " + (device.atomics ? "yes" : "no") + "\n";
  return all;
}

std::string rate_of(const PortFacts& port) {
  if (port.files != nullptr) return port.files->rate;
  if (port.answers->gbit <= 0) return "unknown rate";
  char text[32];
  std::snprintf(text, sizeof text, "%g Gb/sec", port.answers->gbit);
  return text;
}

std::string port_text(const PortFacts& port) {
  const std::string state = port.files != nullptr
                                ? port.files->state
                                : (port.answers->state.empty() ? "unknown" : port.answers->state);
  std::string text = "    port " + port.name.substr(port.name.rfind(':') + 1) + ": " + state +
                     ", " +
                     (port.files != nullptr ? port.files->link_layer : port.answers->link_layer) +
                     ", " + rate_of(port);
  if (port.files != nullptr && !port.files->net_device.empty())
    text += ", " + port.files->net_device;
  if (port.answers != nullptr) {
    text += ", packets of " + std::to_string(port.answers->packet_bytes) + " bytes, messages of " +
            std::to_string(port.answers->message_bytes_max);
    if (port.answers->lid != 0) text += ", LID " + std::to_string(port.answers->lid);
  } else {
    text += ", GIDs: " + std::to_string(port.files->gids);
  }
  text += "\n";
  if (port.answers != nullptr) {
    for (const rdma::SurveyedGid& gid : port.answers->gids) {
      text +=
          "      GID " + std::to_string(gid.index) + ": " + gid.type + ", " + gid.address + "\n";
    }
  }
  text += "      used by sessions: ";
  return text +
         (port.why_not.empty() ? "yes, where the server fits" : "no: " + printable(port.why_not)) +
         "\n";
}

}  // namespace

std::string place_of(const std::optional<PciDevice>& pci) {
  if (!pci) return "virtual";
  return pci->address + (pci->node < 0 ? "" : ", NUMA node " + std::to_string(pci->node));
}

json pci_json(const std::optional<PciDevice>& pci) {
  if (!pci) return nullptr;
  return {{"address", pci->address},
          {"numa_node", pci->node < 0 ? json() : json(pci->node)},
          {"cpus", pci->cpus.empty() ? json() : json(pci->cpus)}};
}

std::string rdma_text(const RdmaInfo& info) {
  std::string text = "\nRDMA devices";
  if (!info.survey.library.empty()) text += ", by " + printable(info.survey.library);
  text += "\n";
  if (!info.survey.why_none.empty()) text += "  " + printable(info.survey.why_none) + "\n";
  const std::vector<DeviceFacts> devices = devices_of(info);
  const std::vector<PortFacts> ports = ports_of(info);
  for (const DeviceFacts& device : devices) {
    text += "  " + printable(device.name) +
            (device.files == nullptr ? "" : ": " + place_of(device.files->pci)) + "\n";
    if (device.answers != nullptr) text += limits_text(*device.answers);
    for (const PortFacts& port : ports) {
      if (is_of(port.name, device.name)) text += port_text(port);
    }
  }
  if (devices.empty()) text += "  none\n";
  const rdma::PacketClass& packets = info.survey.packets;
  if (packets.service_level != 0 || packets.traffic_class != 0) {
    text += "  packets: service level " + std::to_string(packets.service_level) +
            ", traffic class " + std::to_string(packets.traffic_class) + "\n";
  }
  return text;
}

json rdma_devices_json(const RdmaInfo& info) {
  json all = json::array();
  for (const DeviceFacts& device : devices_of(info)) {
    json one = {{"name", device.name},
                {"pci", device.files == nullptr ? json() : pci_json(device.files->pci)},
                {"firmware", nullptr},
                {"reason", info.survey.why_none.empty() ? json() : json(info.survey.why_none)},
                {"limits", nullptr}};
    if (const rdma::SurveyedDevice* answers = device.answers; answers != nullptr) {
      if (!answers->why_not.empty()) {
        one["reason"] = answers->why_not;
      } else {
        one["firmware"] = answers->firmware;
        one["limits"] = {
            {"queue_pairs", answers->queue_pairs_max},
            {"requests", answers->requests_max},
            {"completions", answers->completions_max},
            {"pieces", answers->pieces_max},
            {"inline_bytes", answers->inline_bytes_max ? json(*answers->inline_bytes_max) : json()},
            {"region_bytes", answers->region_bytes_max},
            {"on_demand_paging", answers->pages_on_demand},
            {"atomics", answers->atomics}};
      }
    }
    all.push_back(std::move(one));
  }
  return all;
}

json rdma_ports_json(const RdmaInfo& info) {
  json all = json::array();
  for (const PortFacts& port : ports_of(info)) {
    json one = {{"port", port.name},
                {"used", port.why_not.empty()},
                {"reason", port.why_not.empty() ? json() : json(port.why_not)},
                {"rate", rate_of(port)},
                {"network_device", nullptr},
                {"mtu", nullptr},
                {"packet_bytes", nullptr},
                {"message_bytes", nullptr},
                {"lid", nullptr},
                {"gid_table", nullptr}};
    if (const rdma::SurveyedPort* answers = port.answers; answers != nullptr) {
      json gids = json::array();
      for (const rdma::SurveyedGid& gid : answers->gids) {
        gids.push_back({{"index", gid.index}, {"type", gid.type}, {"address", gid.address}});
      }
      one["state"] = answers->state.empty() ? "unknown" : answers->state;
      one["link_layer"] = answers->link_layer;
      one["gids"] = answers->gids.size();
      one["packet_bytes"] = answers->packet_bytes;
      one["message_bytes"] = answers->message_bytes_max;
      one["lid"] = answers->lid;
      one["gid_table"] = std::move(gids);
    }
    if (const VerbsPort* files = port.files; files != nullptr) {
      one["state"] = files->state;
      one["link_layer"] = files->link_layer;
      one["gids"] = files->gids;
      if (!files->net_device.empty()) one["network_device"] = files->net_device;
      if (files->mtu > 0) one["mtu"] = files->mtu;
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace gpurun::tools
