// gpuctl health: checks this machine and its servers, and prints the remedy of each fault.
#pragma once

#include <string>

#include "base/status.h"
#include "tools/gpuctl/health/check.h"
#include "tools/gpuctl/list.h"

namespace gpurun::tools {

struct HealthOptions {
  bool as_json = false;
  bool local = false;         // Contact no server.
  bool need_servers = false;  // A machine for which no server is named fails.
  std::string origin = {};    // The place that names the servers, or "none". Empty: no place does.
  // Failures to choose the servers, and to read the named credential.
  Status servers_fault = {}, credential_fault = {};
};

// Prints a line for each check, or one object of JSON. Where no server is named, it checks the
// gpurund of this machine if one listens on the default port. Returns 0 when nothing failed,
// else 1.
int check_health(ServerChoice choice, const HealthOptions& options);

// Both forms of the output.
std::string health_text(const Checks& checks);
std::string health_json(const Checks& checks);

}  // namespace gpurun::tools
