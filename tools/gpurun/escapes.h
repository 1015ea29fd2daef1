// Escapes: programs that start other programs where gpurun does not reach. That is in an older
// server process, in a container, on another machine, later, or as another user.
#pragma once

#include <optional>
#include <string>

#include "tools/gpurun/launchers.h"

namespace gpurun::tools {

// One sentence about the first such program that `command` starts: itself, one behind launchers
// such as env(1), or one in a shell's -c text. Nothing: none is known by name. Scripts are not
// read. `into_containers` leaves out programs that start others in a container.
std::optional<std::string> escape_of(const Words& command, bool into_containers = false);

}  // namespace gpurun::tools
