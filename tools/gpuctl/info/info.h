// gpuctl info: the transports, devices and limits of this machine, and which transport a session
// would use. It is to gpurun what `ucx_info -d` is to UCX.
#pragma once

#include <string>
#include <vector>

#include "tools/gpuctl/health/machine_checks.h"
#include "tools/gpuctl/list.h"
#include "tools/gpuctl/machine/gpudirect.h"
#include "tools/gpuctl/machine/known_transports.h"
#include "tools/gpuctl/machine/net_devices.h"
#include "tools/gpuctl/machine/verbs.h"
#include "transport/rdma/survey.h"

namespace gpurun::tools {

struct TransportInfo {
  std::string name, what;
  std::string why_not;        // Why a session does not use it. Empty: it may.
  bool first = false;         // A session tries this one first.
  std::string port = {};      // Of RDMA, if a session uses it: this machine's port.
  std::string why_port = {};  // Why it comes before others. Empty: nothing prefers it.
};

struct ServerInfo {
  std::string server;
  std::string failure;  // Its address is unknown, or the credential is broken. Empty: neither.
  Route route;
  std::vector<TransportInfo> transports;
};

struct MachineInfo {
  std::string release;  // Of this gpuctl.
  std::vector<NetDevice> net;
  std::vector<VerbsDevice> verbs;
  std::vector<VerbsPort> ports;
  transport::rdma::Survey survey;  // What these devices answer.
  std::vector<PciDevice> gpus;
  GpuDirect gpudirect;
  MachineLimits limits;
  std::vector<ServerInfo> servers;
};

// Looks names and stored credentials up, opens the RDMA devices that the user trusts, and opens no
// connection.
ServerInfo server_info(const std::string& server, const Credential& named,
                       const client::LinkSecurity& security);
MachineInfo machine_info(const SystemFiles& files, const MachineLimits& limits,
                         transport::rdma::Survey survey);

std::string info_text(const MachineInfo& info);
std::string info_json(const MachineInfo& info);

// Prints this machine and each server of the choice. Returns the exit status: 0, or 125 when a
// server has a failure.
int show_info(const ServerChoice& choice, bool as_json);

}  // namespace gpurun::tools
