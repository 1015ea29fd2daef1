// Programs that start others where gpurun does not reach: in a server process that is older than
// the run, in a container, on another machine, later, or as another user.
#pragma once

#include <optional>
#include <string>

#include "tools/gpurun/launchers.h"

namespace gpurun::tools {

// One sentence about the first such program that `command` starts: itself, behind launchers such as
// env(1), or in the string of a shell's -c. Nothing: none is known by name. A script is not read.
std::optional<std::string> escape_of(const Words& command);

}  // namespace gpurun::tools
