// Server checks: the link is made by the functions that gpurun itself uses.
#include "tools/gpuctl/health/server_checks.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>

#include "base/printable.h"
#include "base/system_files.h"
#include "client/attach/session_connections.h"
#include "protocol/control/version.h"
#include "protocol/limits.h"
#include "tools/gpurun/lease.h"
#include "transport/sockets/address.h"
#include "transport/tls/certificate.h"
#include "transport/transport.h"

namespace gpurun::tools {
namespace {

namespace sockets = transport::sockets;

constexpr std::chrono::seconds kConnectPatience{5};
// Tokens expire by the server's clock. An answer takes much less.
constexpr std::int64_t kClockSecondsMax = 60;

Check failure_of(const Status& status, const std::string& step) {
  const Remedy remedy = remedy_of(status, step);
  return failed(remedy.check, status.message(), remedy.fix);
}

// 0: unknown.
unsigned path_mtu_of(int socket) {
  tcp_info about = {};
  socklen_t bytes = sizeof about;
  return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &about, &bytes) == 0 ? about.tcpi_pmtu : 0;
}

// The name, and the port behind it. False: the server cannot be reached.
bool add_reach_checks(const std::string& server, Checks* checks) {
  const Result<sockets::HostPort> address = sockets::parse_host_port(server, limits::kDefaultPort);
  if (!address.ok()) {
    checks->push_back(failure_of(address.status(), "name"));
    return false;
  }
  const Result<std::vector<sockets::SocketAddress>> found = sockets::resolve(*address, false);
  if (!found.ok()) {
    checks->push_back(
        failure_of(advised(Status(Code::kUnavailable, found.status().message()), server), "name"));
    return false;
  }
  std::string addresses;
  for (const sockets::SocketAddress& each : *found) {
    const std::string text = each.to_string();
    if (addresses.find(text) == std::string::npos)
      addresses += (addresses.empty() ? "" : ", ") + text;
  }
  checks->push_back(ok("name", server + " is " + addresses));
  const auto connected = transport::connect("tcp://" + server, Deadline::in(kConnectPatience), {});
  if (!connected.ok()) {
    checks->push_back(failure_of(advised(connected.status(), server), "port"));
    return false;
  }
  checks->push_back(ok("port", server + " accepts connections"));
  const std::string device = found->empty() ? "" : route_to(found->front()).device;
  const auto mtu = SystemFiles().number("/sys/class/net/" + device + "/mtu");
  checks->push_back(path_mtu_check(server, path_mtu_of((*connected)->fd()), device,
                                   static_cast<int>(device.empty() ? 0 : mtu.value_or(0))));
  return true;
}

Check clock_check(const std::string& server, const protocol::Listing& listing, std::int64_t now) {
  // A peer sends this number.
  if (listing.now <= 0 || listing.now > std::int64_t{1} << 40) {
    return not_applicable("clock", server + " shows no clock. Its gpurund is older");
  }
  const std::int64_t ahead = listing.now - now;
  const std::string text = "the clock of " + server + " is " + std::to_string(std::abs(ahead)) +
                           " s " + (ahead < 0 ? "behind" : "ahead") + ", to a second";
  if (std::abs(ahead) <= kClockSecondsMax) return ok("clock", text);
  return warning("clock", text + ". Tokens expire by the server's clock",
                 "synchronize both clocks by NTP, as timedatectl set-ntp true or chronyd do");
}

}  // namespace

Check tls_check(const std::string& server, const client::ServerKey& key, bool same_host,
                const client::LinkSecurity& security) {
  const std::string shows =
      server + " shows the key " + transport::tls::to_string(key.shown) + ", which ";
  const std::string authority =
      "an authority in " + security.authorities_file + " has signed for this name";
  const std::string namer =
      security.fingerprint ? "--server-fingerprint names" : "the token's fingerprint names";
  const std::string login =
      "gpurun login " + server + ", and compare the fingerprint with the operator's";
  switch (key.rule) {
    case client::KeyRule::kFingerprint:
      return ok("tls", shows + namer);
    case client::KeyRule::kAuthorities:
      return ok("tls", shows + authority);
    case client::KeyRule::kAuthoritiesFingerprint:
      return ok("tls", shows + namer + ", and " + authority);
    case client::KeyRule::kPinned:
      return ok("tls", shows + "gpurun login pinned");
    case client::KeyRule::kMetBefore:
      return warning("tls", shows + "is that of the first connection. Nobody has compared it",
                     login);
    case client::KeyRule::kMetNow:
      return warning("tls", shows + "was met for the first time. Nobody has compared it", login);
    default:
      break;
  }
  if (same_host) {
    return not_applicable("tls", "the link to " + server +
                                     " is not encrypted, because it leads to a loopback address");
  }
  return warning("tls",
                 "the link to " + server +
                     " is not encrypted, so every machine on the way can read and change it",
                 "drop --insecure-plaintext and GPURUN_INSECURE_PLAINTEXT");
}

Check rdma_check(const SessionFacts& facts) {
  const char* name = "rdma";
  const auto why = [&](const std::string& transport) {
    for (const KnownTransport& each : known_transports()) {
      if (each.name == transport) return why_not(each, facts, false);
    }
    return std::string("unknown");
  };
  if (facts.fabrics.trusted.empty()) {
    return not_applicable(name,
                          std::string("sessions do not use RDMA: ") + client::kNoFabricTrusted);
  }
  if (client::fabric_use(facts.allowed) == client::FabricUse::kNo) {
    return not_applicable(name, std::string("sessions do not use RDMA: ") +
                                    client::kTransportsVariable + " leaves it out");
  }
  if (why("shm").empty()) {
    return not_applicable(name, "sessions with a server of this machine use shared memory");
  }
  const std::string reason = why("rdma");
  if (!reason.empty()) {
    return failed(name, "sessions with " + facts.server + " do not use RDMA: " + reason,
                  "gpuctl info shows each device with the reason against it; mend that, or leave "
                  "out --trust-fabric and GPURUN_TRUST_FABRIC");
  }
  return ok(name, "sessions with " + facts.server + " may use " + facts.ports.usable.front() +
                      ", if its gpurund trusts the fabric, too. The payload is not encrypted");
}

Check path_mtu_check(const std::string& server, unsigned path_mtu, const std::string& device,
                     int device_mtu) {
  const char* name = "path-mtu";
  if (path_mtu == 0 || device_mtu <= 0) {
    return not_applicable(name, "the network device that leads to " + server + " is unknown");
  }
  // A packet of IP has at most 65535 bytes.
  const unsigned most = std::min(static_cast<unsigned>(device_mtu), 65535U);
  const std::string text =
      "packets to " + server + " have up to " + std::to_string(path_mtu) + " bytes";
  if (path_mtu >= most) {
    return ok(name, text + ", as " + device + " allows. No large packet was tried");
  }
  return warning(name,
                 text + ", and " + device + " allows " + std::to_string(most) +
                     ": a tunnel, or a network with a smaller MTU, is on the way",
                 "set one MTU on the whole way, or ip link set " + device + " mtu " +
                     std::to_string(path_mtu));
}

Remedy remedy_of(const Status& status, const std::string& step) {
  struct Known {
    const char *part, *check, *fix;
  };
  constexpr const char* kAskAgain =
      "ask the server's operator for a token, then: gpurun login HOST";
  constexpr const char* kCompare =
      "ask the operator for the key. If it is the new one, remove the line of the old one, and "
      "log in";
  constexpr const char* kOneRelease = "install one release of gpurun on both machines";
  constexpr const char* kNotOurs =
      "check that the port is gpurund's. A Bitfusion server does not speak gpurun's protocol";
  static constexpr Known kAll[] = {
      {"cannot find host", "name", "correct the server's name, or this machine's name service"},
      {"speaks TLS only", "tls", "add --tls"},
      {"speaks TLS beyond its machine", "tls", "drop --insecure-plaintext"},
      {"does not speak TLS", "tls", kNotOurs},
      {"refuses TLS", "tls", "leave out --tls, or start gpurund with --tls"},
      {"wants a token", "token", kAskAgain},
      {"shows another key", "tls", kCompare},
      {"not the expected key", "tls", kCompare},
      {"is not trusted", "tls", "name the file of the authority by --tls-ca"},
      {"others may read", "token", "chmod 600 that file"},
      {"revoked", "token", kAskAgain},
      {"expired", "token", kAskAgain},
      {"does not know token", "token", kAskAgain},
      {"cut or damaged", "token",
       "copy the whole token, from gpurun1_ on, then: gpurun login HOST"},
      {"speaks protocol", "versions", kOneRelease},
      {"does not offer", "versions", kOneRelease},
      {"means something else", "versions", kOneRelease},
      {"hung up", "tls", kNotOurs},
      {"secret", "token",
       "name the file with your token by GPURUN_TOKEN_FILE, or log in: gpurun login HOST"},
  };
  for (const Known& each : kAll) {
    if (status.message().find(each.part) == std::string::npos) continue;
    // A peer that hangs up fails the step that it was in.
    return {status.code() == Code::kPeerGone ? step : each.check, each.fix};
  }
  switch (status.code()) {
    case Code::kUnavailable:
      return {"port",
              "start gpurund --listen 0.0.0.0 on that machine, and open its TCP port (4790)"};
    case Code::kDeadline:
      return {step, "open the port in the firewalls, and check that it is gpurund's"};
    case Code::kProtocol:
    case Code::kPeerGone:
      return {step, kNotOurs};
    default:
      return {step, "read the log of gpurund on that machine, and docs/troubleshooting.md"};
  }
}

Checks listing_checks(const std::string& server, const protocol::Listing& listing,
                      std::int64_t now) {
  Checks checks;
  const std::string release = printable(listing.release);
  if (release == protocol::kRelease) {
    checks.push_back(ok("versions", server + " has this machine's release, " + release));
  } else {
    checks.push_back(warning("versions",
                             server + " has release " + release + ", and this machine " +
                                 protocol::kRelease +
                                 ". Both fit if their protocol and calls are the same",
                             "install one release of gpurun on both machines"));
  }
  const auto free =
      std::count_if(listing.gpus.begin(), listing.gpus.end(),
                    [](const protocol::ListedGpu& gpu) { return gpu.holder.empty(); });
  const std::string gpus = server + " has GPUs: " + std::to_string(listing.gpus.size()) +
                           ", of them free: " + std::to_string(free);
  if (listing.gpus.empty()) {
    checks.push_back(failed("gpus", server + " has no GPU",
                            "its operator reads the log of gpurund, and runs nvidia-smi there"));
  } else if (free == 0) {
    checks.push_back(warning("gpus", gpus,
                             "gpuctl list shows the holders, and gpurun --timeout 1h waits for a "
                             "GPU"));
  } else {
    checks.push_back(ok("gpus", gpus));
  }
  if (listing.confinement.find("user") == std::string::npos) {
    checks.push_back(warning("confinement", server + ": workers run as the daemon's user",
                             "start gpurund as root, with --worker-uids (docs/operations.md)"));
  } else {
    checks.push_back(ok("confinement", server + ": workers have users of their own"));
  }
  checks.push_back(clock_check(server, listing, now));
  return checks;
}

Checks server_checks(const std::string& server, const ServerChoice& choice) {
  Checks checks;
  if (!add_reach_checks(server, &checks)) return checks;
  ServerChoice one = choice;
  one.security.say = nullptr;  // The check of the key reports a first meeting.
  const auto link = connect_to_server(server, one.credential, one.security, nullptr);
  if (!link.ok()) {
    checks.push_back(failure_of(link.status(), "tls"));
    return checks;
  }
  checks.push_back(tls_check(server, (*link)->server_key(), (*link)->same_host(), one.security));
  const Result<protocol::Listing> listing = (*link)->list();
  if (!listing.ok()) {
    checks.push_back(failure_of(advised(listing.status(), server, one.credential), "token"));
    return checks;
  }
  checks.push_back(ok("token", server + " answers, and accepts this user"));
  append(&checks, listing_checks(server, *listing, std::int64_t{std::time(nullptr)}));
  const Result<SessionFacts> facts = session_facts(server, one.credential, one.security);
  checks.push_back(facts.ok() ? rdma_check(*facts)
                              : failed("rdma", facts.status().message(), "correct that value"));
  return checks;
}

}  // namespace gpurun::tools
