// Default servers: those of a run for which neither -l nor -s names any.
#pragma once

#include <string>

#include "tools/gpurun/server_list.h"

namespace gpurun::tools {

// A list as of -l, or "none".
inline constexpr const char* kServersVariable = "GPURUN_SERVERS";
inline constexpr const char* kSystemServersFile = "/etc/gpurun/servers";

struct DefaultServers {
  ServerList list;     // Empty: there are no defaults.
  std::string origin;  // The variable or file that names them.
};

// What the first of these names: the variable, the user's file, the system's file. A file that is
// missing, or names nothing, leaves it to the next. kInvalidArgument: one is broken; the message
// names the variable, or file and line.
Result<DefaultServers> default_servers(const std::string& system_file = kSystemServersFile);

// servers in config_folder(); empty: the environment names no such folder.
std::string user_servers_file();

// Makes `server` the first of the user's file, which keeps its other servers and its comments.
Status make_default(const std::string& path, const Address& server);

}  // namespace gpurun::tools
