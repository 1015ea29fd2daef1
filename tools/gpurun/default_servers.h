// Default servers: the servers of a run for which neither -l nor -s names any.
#pragma once

#include <string>

#include "tools/gpurun/server_list.h"

namespace gpurun::tools {

// The variable with a list in the form of -l, or "none".
inline constexpr const char* kServersVariable = "GPURUN_SERVERS";
inline constexpr const char* kSystemServersFile = "/etc/gpurun/servers";

struct DefaultServers {
  ServerList list;     // Empty: there are no defaults.
  std::string origin;  // The variable or file that names them.
};

// Returns the first that names servers: the variable, the user's file, the system's file. A missing
// or empty one is skipped. kInvalidArgument: one is invalid. The message names the variable, or the
// file and line.
Result<DefaultServers> default_servers(const std::string& system_file = kSystemServersFile);

// The file `servers` in config_folder(). Empty: the environment names no such folder.
std::string user_servers_file();

// Makes `server` the first in the user's file, and keeps its other servers and its comments.
Status make_default(const std::string& path, const Address& server);

}  // namespace gpurun::tools
