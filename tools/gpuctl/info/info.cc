// gpuctl info: both forms of the output have the same facts.
#include "tools/gpuctl/info/info.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/printable.h"
#include "protocol/control/version.h"
#include "tools/gpuctl/complain.h"
#include "tools/gpuctl/info/rdma_info.h"
#include "tools/gpurun/options.h"

namespace gpurun::tools {
namespace {

using nlohmann::json;

std::string whole(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", value);
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes == kUnlimited) return "unlimited";
  return std::to_string(bytes >> 10) + " KiB";
}

std::string count_text(std::uint64_t value) {
  return value == kUnlimited ? "unlimited" : std::to_string(value);
}

json count_json(std::uint64_t value) {
  return value == kUnlimited ? json("unlimited") : json(value);
}

RdmaInfo rdma_of(const MachineInfo& info) { return {info.verbs, info.ports, info.survey}; }

std::string server_text(const ServerInfo& one) {
  std::string text = "\nserver " + printable(one.server) + "\n";
  if (!one.failure.empty()) return text + "  " + printable(one.failure) + "\n";
  text += "  network device: " + (one.route.device.empty() ? "unknown" : one.route.device) +
          (one.route.mbit > 0 ? ", " + whole(one.route.mbit) + " Mbit/s" : ", speed unknown") +
          "\n";
  for (const TransportInfo& each : one.transports) {
    char head[64];
    std::snprintf(head, sizeof head, "  %-6s %-14s ", each.name.c_str(), each.what.c_str());
    text += head;
    if (!each.why_not.empty()) {
      text += "no: " + printable(each.why_not);
    } else {
      text += each.first ? "yes: a session tries it first" : "yes: if the ones above fail";
      if (!each.port.empty()) {
        text += ". By " + each.port + (each.why_port.empty() ? "" : " (" + each.why_port + ")") +
                ", payload not encrypted, if the server trusts its fabric";
      }
    }
    text += "\n";
  }
  return text;
}

json server_json(const ServerInfo& one) {
  json transports = json::array();
  for (const TransportInfo& each : one.transports) {
    transports.push_back({{"transport", each.name},
                          {"used", each.why_not.empty()},
                          {"first", each.first},
                          {"port", each.port.empty() ? json() : json(each.port)},
                          {"port_reason", each.why_port.empty() ? json() : json(each.why_port)},
                          {"reason", each.why_not.empty() ? json() : json(each.why_not)}});
  }
  return {{"server", one.server},
          {"failure", one.failure.empty() ? json() : json(one.failure)},
          {"network_device", one.route.device.empty() ? json() : json(one.route.device)},
          {"network_device_mbit", one.route.mbit > 0 ? json(one.route.mbit) : json()},
          {"transports", transports}};
}

std::string devices_text(const MachineInfo& info) {
  std::string text = "\nnetwork devices\n";
  for (const NetDevice& each : info.net) {
    char line[256];
    std::snprintf(line, sizeof line, "  %-15s %-8s MTU %-6d %-16s ", each.name.c_str(),
                  each.state.c_str(), each.mtu,
                  each.mbit > 0 ? (whole(each.mbit) + " Mbit/s").c_str() : "speed unknown");
    text += line + place_of(each.pci) + "\n";
  }
  text += rdma_text(rdma_of(info));
  text += "\nGPUs of this machine\n";
  for (const PciDevice& each : info.gpus) text += "  NVIDIA, " + place_of(each) + "\n";
  if (info.gpus.empty()) text += "  none\n";
  const bool possible = info.gpudirect.possible();
  text += std::string("\nGPUDirect\n  ") + (possible ? "" : "no: ") +
          printable(gpudirect_text(info.gpudirect)) + "\n";
  return text;
}

json gpudirect_json(const GpuDirect& found) {
  const bool possible = found.possible();
  return {{"possible", possible},
          {"ways", possible ? json(found.ways) : json::array()},
          {"reason", possible ? json() : json(gpudirect_text(found))}};
}

}  // namespace

ServerInfo server_info(const std::string& server, const Credential& named,
                       const client::LinkSecurity& security) {
  ServerInfo info;
  info.server = server;
  const Result<SessionFacts> facts = session_facts(server, named, security);
  if (!facts.ok()) {
    info.failure = facts.status().message();
    return info;
  }
  info.route = facts->route;
  bool first = true;
  for (const KnownTransport& each : known_transports()) {
    TransportInfo one = {each.name, each.what, why_not(each, *facts, false)};
    one.first = one.why_not.empty() && first;
    if (one.first) first = false;
    if (one.why_not.empty() && each.link == LinkNeed::kAny) {
      one.port = facts->ports.usable.front();
      one.why_port = facts->ports.why_first;
    }
    info.transports.push_back(std::move(one));
  }
  return info;
}

MachineInfo machine_info(const SystemFiles& files, const MachineLimits& limits,
                         transport::rdma::Survey survey) {
  MachineInfo info;
  info.release = protocol::kRelease;
  info.net = net_devices(files);
  info.verbs = verbs_devices(files);
  info.ports = verbs_ports(files);
  info.survey = std::move(survey);
  const std::vector<PciDevice> all = pci_devices(files);
  std::copy_if(all.begin(), all.end(), std::back_inserter(info.gpus), is_nvidia_gpu);
  info.gpudirect = gpudirect(files);
  info.limits = limits;
  return info;
}

std::string info_text(const MachineInfo& info) {
  std::string text = "gpurun " + info.release + "\n\ntransports of this build\n";
  for (const KnownTransport& each : known_transports()) {
    text += std::string("  ") + each.name + ": " + each.what +
            (*each.missing == '\0' ? "" : std::string(" (") + each.missing + ")") + "\n";
  }
  text += devices_text(info);
  text += "\nlimits\n  locked memory: " + bytes_text(info.limits.locked_bytes) +
          "\n  open files: " + count_text(info.limits.descriptors_soft) + ", at most " +
          count_text(info.limits.descriptors_hard) +
          "\n  file size: " + bytes_text(info.limits.file_bytes_hard) +
          "\n  /dev/shm: " + bytes_text(info.limits.shared_memory_free) + " free\n";
  for (const ServerInfo& each : info.servers) text += server_text(each);
  return text;
}

std::string info_json(const MachineInfo& info) {
  json transports = json::array(), net = json::array(), gpus = json::array(),
       servers = json::array();
  for (const KnownTransport& each : known_transports()) {
    transports.push_back({{"transport", each.name},
                          {"name", each.what},
                          {"missing", *each.missing == '\0' ? json() : json(each.missing)}});
  }
  for (const NetDevice& each : info.net) {
    net.push_back({{"name", each.name},
                   {"state", each.state},
                   {"mtu", each.mtu},
                   {"mbit", each.mbit > 0 ? json(each.mbit) : json()},
                   {"pci", pci_json(each.pci)}});
  }
  for (const PciDevice& each : info.gpus) gpus.push_back(pci_json(each));
  for (const ServerInfo& each : info.servers) servers.push_back(server_json(each));
  const json all = {
      {"release", info.release},
      {"transports", transports},
      {"network_devices", net},
      {"rdma_library", info.survey.library.empty() ? json() : json(info.survey.library)},
      {"rdma_devices", rdma_devices_json(rdma_of(info))},
      {"rdma_ports", rdma_ports_json(rdma_of(info))},
      {"rdma_packets",
       {{"service_level", info.survey.packets.service_level},
        {"traffic_class", info.survey.packets.traffic_class}}},
      {"gpus", gpus},
      {"gpudirect", gpudirect_json(info.gpudirect)},
      {"limits",
       {{"locked_bytes", count_json(info.limits.locked_bytes)},
        {"descriptors", count_json(info.limits.descriptors_soft)},
        {"descriptors_most", count_json(info.limits.descriptors_hard)},
        {"file_bytes", count_json(info.limits.file_bytes_hard)},
        {"shared_memory_free_bytes", info.limits.shared_memory_free}}},
      {"servers", servers}};
  return all.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
}

int show_info(const ServerChoice& choice, bool as_json) {
  const auto allowed = allowed_ports_from_environment();
  if (!allowed.ok()) {
    complain(allowed.status().message());
    return kExitOwnFailure;
  }
  MachineInfo info = machine_info(SystemFiles(), this_machine(), transport::rdma::survey(*allowed));
  bool failed = false;
  for (const std::string& server : choice.servers) {
    info.servers.push_back(server_info(server, choice.credential, choice.security));
    const std::string& failure = info.servers.back().failure;
    if (failure.empty()) continue;
    complain(failure);
    failed = true;
  }
  std::fputs((as_json ? info_json(info) : info_text(info)).c_str(), stdout);
  return failed ? kExitOwnFailure : 0;
}

}  // namespace gpurun::tools
