// parse_transports(): reads a list of names separated by commas.
#include "client/attach/transports.h"

#include <algorithm>
#include <string>

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

}  // namespace

Result<transport::rdma::AllowedPorts> parse_allowed_ports(std::string_view trusted,
                                                          std::string_view restricted,
                                                          const char* trust_origin) {
  Result<std::vector<std::string>> trusts = parse_ports(trust_origin, trusted);
  if (!trusts.ok()) return trusts.status();
  Result<std::vector<std::string>> restricts = parse_ports(kNetDevicesVariable, restricted);
  if (!restricts.ok()) return restricts.status();
  return transport::rdma::AllowedPorts{*std::move(trusts), *restricts, *restricts};
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
