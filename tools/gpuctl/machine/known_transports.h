// KnownTransports: the transports of sessions as data, and which of them a session to a server may
// use. `gpuctl netperf` and `gpuctl info` read this list.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "client/attach/transports.h"
#include "client/control/link_security.h"
#include "tools/gpuctl/machine/fabric_ports.h"
#include "tools/gpuctl/machine/route.h"
#include "tools/gpurun/credential.h"

namespace gpurun::tools {

// The session that a transport needs.
enum class LinkNeed {
  kPlain,  // Without encryption.
  kTls,
  kAny,  // RDMA: the session begins over TCP, with TLS or without.
};

struct KnownTransport {
  const char* name;     // "tls".
  const char* what;     // "TCP with TLS".
  const char* setting;  // Its word in GPURUN_TRANSPORTS.
  LinkNeed link;
  bool within_machine;  // It works with a server of the same machine only.
  const char* session;  // How a session's description begins that uses it.
  const char* missing;  // Why this build lacks it. "": it has it.
};

// In the order in which a session tries them.
const std::vector<KnownTransport>& known_transports();

// What decides about a session to one server.
struct SessionFacts {
  std::string server;      // HOST:PORT.
  bool same_host = false;  // Its address is one of this machine's own (loopback).
  client::LinkSecurity security = {};
  std::vector<client::TransportKind> allowed = {};  // By GPURUN_TRANSPORTS.
  // By GPURUN_TRUST_FABRIC and GPURUN_NET_DEVICES.
  transport::rdma::AllowedPorts fabrics = {};
  Route route = {};
  // Without a trusted fabric, or where GPURUN_TRANSPORTS leaves RDMA out, no device is opened.
  FabricPorts ports = {};
};

// Looks the server up, reads the variables of transports, and opens the RDMA devices that the user
// trusts. `named` is the credential that the user named, if any. Errors are those of
// parse_host_port(), resolve(), parse_transports(), parse_allowed_ports() and found_credential().
Result<SessionFacts> session_facts(const std::string& server, const Credential& named,
                                   const client::LinkSecurity& security);

// The values of GPURUN_TRUST_FABRIC and GPURUN_NET_DEVICES. Errors are those of
// parse_allowed_ports().
Result<transport::rdma::AllowedPorts> allowed_ports_from_environment();

// Why a session cannot use `transport`. Empty: it can, as far as this machine knows.
// `may_ask_for_tls`: the caller is ready to add --tls.
std::string why_not(const KnownTransport& transport, const SessionFacts& facts,
                    bool may_ask_for_tls);

}  // namespace gpurun::tools
