// Questions to the person at the terminal that is this process's stdin.
#pragma once

#include <string>

#include "base/result.h"

namespace gpurun::tools {

// Prints `prompt` on stderr and reads a line that the terminal does not show. The terminal is as
// before when this returns, or when a signal ends the process meanwhile. kInvalidArgument: there
// was no line.
Result<std::string> read_hidden_line(const std::string& prompt);

// Whether the line that answers `question` is yes.
bool says_yes(const std::string& question);

}  // namespace gpurun::tools
