// Bitfusion's file of servers (servers.conf), so that a site that used it can keep the file.
//
// It is a small piece of YAML: a list "servers". Each entry has the address that its client found
// to work (reachable), and all addresses of the server (addresses):
//
//   servers:
//   - reachable: 10.202.122.248:56001
//     addresses:
//     - 10.202.122.248:56001
//
// Other keys are ignored. Ports count as written: gpurund must listen on them (--listen), or the
// file must have no port.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace gpurun::tools {

// True when the first line that is neither empty nor a comment begins the list.
bool is_bitfusion_servers(const std::string& text);

// The addresses with their lines, in the file's order. For each server the reachable one or,
// without such an entry, all. kInvalidArgument: "LINE: what is wrong".
Result<std::vector<std::pair<int, std::string>>> bitfusion_servers(const std::string& text);

}  // namespace gpurun::tools
