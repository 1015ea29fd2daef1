// parse_transports(): reads a list of names separated by commas.
#include "client/attach/transports.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

#include "base/printable.h"

namespace gpurun::client {
namespace {

Status wrong(const char* origin, std::string_view text, const std::string& why) {
  return Status(Code::kInvalidArgument,
                std::string(origin) + " is '" + printable(text.substr(0, 80)) + "': " + why +
                    "; it may be shm, rdma, tcp, or several with commas between");
}

Result<std::vector<std::string>> parse_ports(const char* variable, std::string_view text) {
  std::vector<std::string> ports;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    if (!transport::rdma::is_port_name(name) || ports.size() == transport::rdma::kPortsMax) {
      return Status(Code::kInvalidArgument,
                    std::string(variable) + ": '" + printable(name.substr(0, 40)) +
                        "' is not a device or port; write mlx5_0 or mlx5_0:1, with commas between");
    }
    ports.emplace_back(name);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return ports;
}

Status take_number(const char* variable, std::string_view text, unsigned most, std::uint8_t* into) {
  if (text.empty()) return {};
  unsigned number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number > most) {
    return Status(Code::kInvalidArgument, std::string(variable) + " is '" +
                                              printable(text.substr(0, 40)) + "'; it may be 0 to " +
                                              std::to_string(most));
  }
  *into = static_cast<std::uint8_t>(number);
  return {};
}

}  // namespace

Result<transport::rdma::PacketClass> parse_packet_class(std::string_view service_level,
                                                        std::string_view traffic_class) {
  transport::rdma::PacketClass packets;
  GPURUN_RETURN_IF_ERROR(take_number(kServiceLevelVariable, service_level,
                                     transport::rdma::kServiceLevelMax, &packets.service_level));
  GPURUN_RETURN_IF_ERROR(take_number(kTrafficClassVariable, traffic_class,
                                     transport::rdma::kTrafficClassMax, &packets.traffic_class));
  return packets;
}

Result<transport::rdma::AllowedPorts> parse_allowed_ports(std::string_view trusted,
                                                          std::string_view restricted,
                                                          const char* trust_origin) {
  Result<std::vector<std::string>> trusts = parse_ports(trust_origin, trusted);
  if (!trusts.ok()) return trusts.status();
  Result<std::vector<std::string>> restricts = parse_ports(kNetDevicesVariable, restricted);
  if (!restricts.ok()) return restricts.status();
  return transport::rdma::AllowedPorts{*std::move(trusts), *restricts, *restricts, {}};
}

Result<std::vector<TransportKind>> parse_transports(std::string_view text, const char* origin) {
  if (text.empty()) return all_transports();
  std::vector<TransportKind> kinds;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    TransportKind kind = TransportKind::kTcp;
    if (name == "shm") {
      kind = TransportKind::kSharedMemory;
    } else if (name == "rdma") {
      kind = TransportKind::kRdma;
    } else if (name != "tcp") {
      return wrong(origin, text, "'" + printable(name.substr(0, 40)) + "' is no transport");
    }
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) {
      return wrong(origin, text, "it names " + std::string(name) + " twice");
    }
    kinds.push_back(kind);
    if (comma == std::string_view::npos) return kinds;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace gpurun::client
