// gpuctl netperf: measures what sessions to a server can do, over each transport that they may use.
//
// For each transport it runs a small CUDA program under gpurun. The program is this binary itself,
// with the hidden command `netperf-session`. So the figures are those of the way that every program
// takes.
#pragma once

#include <string>
#include <vector>

#include "tools/gpuctl/list.h"

namespace gpurun::tools {

// The command that gpuctl gives itself.
inline constexpr const char* kSessionCommand = "netperf-session";

struct NetperfOptions {
  std::vector<std::string> link_options;  // gpurun's words for the credential and the security.
  double seconds = 4;                     // Of measuring, for each transport.
  bool as_json = false;
  double link_mbit = 0;  // The speed of the link, for the verdicts. 0: that of the device.
};

// Prints a table for each server of the choice, or a line of JSON. Needs a free GPU. Returns the
// exit status: 0 when at least one transport of every server was measured.
int netperf(const ServerChoice& choice, const NetperfOptions& options);

// The measuring program. Returns its exit status.
int netperf_session(double seconds);

}  // namespace gpurun::tools
