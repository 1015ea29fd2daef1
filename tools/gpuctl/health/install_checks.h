// Install checks: the parts of gpurun on this machine, and what its user has set up.
#pragma once

#include <cstddef>
#include <string>

#include "tools/gpuctl/health/check.h"
#include "tools/gpurun/places.h"

namespace gpurun::tools {

// The programs start, and the loader finds all that the client's libraries need. Starts gpurun and
// gpurund with --version, and the loader on gpurun.
Checks part_checks(const Places& places);

// No other user can read a file with a token.
Checks token_file_checks();

// `origin` names the place of the servers, and `servers` is their number. `needed`: without one it
// fails.
Check servers_check(const std::string& origin, std::size_t servers, bool needed);

}  // namespace gpurun::tools
