// KnownTransports: decisions by the same functions that gpurun's own links use.
#include "tools/gpuctl/machine/known_transports.h"

#include <algorithm>
#include <cstdlib>

#include "client/attach/session_connections.h"
#include "protocol/limits.h"
#include "tools/gpurun/lease.h"
#include "transport/rdma/fabric.h"
#include "transport/sockets/address.h"

namespace gpurun::tools {
namespace {

namespace sockets = transport::sockets;

bool is_allowed(const KnownTransport& transport, const SessionFacts& facts) {
  const auto kinds = client::parse_transports(transport.setting);
  return std::find(facts.allowed.begin(), facts.allowed.end(), kinds->front()) !=
         facts.allowed.end();
}

std::string value_of(const char* variable) {
  const char* const value = getenv(variable);
  return value == nullptr ? "" : value;
}

std::string why_no_fabric(const SessionFacts& facts) {
  if (client::fabric_use(facts.allowed) == client::FabricUse::kNo) {
    return std::string(client::kTransportsVariable) + " names tcp before it";
  }
  if (facts.fabrics.trusted.empty()) return client::kNoFabricTrusted;
  if (!facts.ports.usable.empty()) return "";
  return facts.ports.why_none.empty() ? "this machine's address for the server is unknown"
                                      : facts.ports.why_none;
}

// Why sessions with the server are encrypted.
std::string why_encrypted(const SessionFacts& facts) {
  if (facts.security.always_tls) return "--tls asks for an encrypted session";
  if (!facts.same_host && !facts.security.insecure_plaintext) {
    return "sessions beyond this machine are encrypted, unless both sides use "
           "--insecure-plaintext";
  }
  return "the server's key is pinned or named, so the session is encrypted";
}

}  // namespace

const std::vector<KnownTransport>& known_transports() {
  static const std::vector<KnownTransport> all = {
      {"shm", "shared memory", "shm", LinkNeed::kPlain, true, "shared memory", ""},
      {"rdma", "RDMA", "rdma", LinkNeed::kAny, false, "RDMA", transport::rdma::why_not_built()},
      {"tcp", "TCP", "tcp", LinkNeed::kPlain, false, "TCP, not encrypted", ""},
      {"tls", "TCP with TLS", "tcp", LinkNeed::kTls, false, "TCP, encrypted by TLS", ""},
  };
  return all;
}

Result<SessionFacts> session_facts(const std::string& server, const Credential& named,
                                   const client::LinkSecurity& security) {
  SessionFacts facts;
  facts.server = server;
  const Result<Credential> shown = shown_credential(server, named);
  if (!shown.ok()) return shown.status();
  facts.security = security_for(*shown, security);
  const Result<sockets::HostPort> address = sockets::parse_host_port(server, limits::kDefaultPort);
  if (!address.ok()) return address.status();
  const Result<std::vector<sockets::SocketAddress>> resolved = sockets::resolve(*address, false);
  if (!resolved.ok()) return resolved.status();
  if (!resolved->empty()) {
    facts.same_host = resolved->front().is_loopback();
    facts.route = route_to(resolved->front());
  }
  Result<std::vector<client::TransportKind>> allowed =
      client::parse_transports(value_of(client::kTransportsVariable));
  if (!allowed.ok()) return allowed.status();
  facts.allowed = *std::move(allowed);
  Result<transport::rdma::AllowedPorts> fabrics = allowed_ports_from_environment();
  if (!fabrics.ok()) return fabrics.status();
  facts.fabrics = *std::move(fabrics);
  const bool may =
      !facts.fabrics.trusted.empty() && client::fabric_use(facts.allowed) != client::FabricUse::kNo;
  if (may && facts.route.local) facts.ports = fabric_ports(facts.fabrics, *facts.route.local);
  return facts;
}

Result<transport::rdma::AllowedPorts> allowed_ports_from_environment() {
  Result<transport::rdma::AllowedPorts> ports = client::parse_allowed_ports(
      value_of(client::kTrustFabricVariable), value_of(client::kNetDevicesVariable));
  if (!ports.ok()) return ports;
  const Result<transport::rdma::PacketClass> packets = client::parse_packet_class(
      value_of(client::kServiceLevelVariable), value_of(client::kTrafficClassVariable));
  if (!packets.ok()) return packets.status();
  ports->packets = *packets;
  return ports;
}

std::string why_not(const KnownTransport& transport, const SessionFacts& facts,
                    bool may_ask_for_tls) {
  if (*transport.missing != '\0') return transport.missing;
  if (!is_allowed(transport, facts)) {
    return std::string(client::kTransportsVariable) + " leaves it out";
  }
  if (transport.within_machine && !facts.same_host) return "the server is not on this machine";
  const Result<client::LinkDecision> decision =
      client::decide_link(facts.security, facts.server, facts.same_host);
  if (!decision.ok()) return decision.status().message();
  if (transport.link == LinkNeed::kAny) return why_no_fabric(facts);
  const bool encrypts = transport.link == LinkNeed::kTls;
  if (encrypts == decision->tls) return "";
  if (!encrypts) return why_encrypted(facts);
  if (may_ask_for_tls) return "";
  return facts.security.insecure_plaintext
             ? "--insecure-plaintext turns encryption off"
             : "sessions within this machine are not encrypted, unless --tls asks for it";
}

}  // namespace gpurun::tools
