// Bitfusion's file of servers (servers.conf), so that a site that used it can keep the file.
//
// It is a small piece of YAML: a list "servers", each entry with the address that its client found
// to work (reachable) and all that the server has (addresses):
//
//   servers:
//   - reachable: 10.202.122.248:56001
//     addresses:
//     - 10.202.122.248:56001
//
// Other keys are ignored. Ports count as written; gpurund is told to listen there (--listen), or
// the port is taken out of the file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace gpurun::tools {

// The first line that is neither empty nor a comment begins the list.
bool is_bitfusion_servers(const std::string& text);

// The addresses with their lines, in the file's order: of each server the reachable one, or, where
// none is said, all. kInvalidArgument: "LINE: what is wrong".
Result<std::vector<std::pair<int, std::string>>> bitfusion_servers(const std::string& text);

}  // namespace gpurun::tools
