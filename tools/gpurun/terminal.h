// Terminal: asks the person at the terminal that is this process's stdin.
#pragma once

#include <string>

#include "base/result.h"

namespace gpurun::tools {

// Prints `prompt` on stderr and reads a line that the terminal does not show. Restores the terminal
// before it returns, and when a signal ends the process meanwhile. kInvalidArgument: there was no
// line.
Result<std::string> read_hidden_line(const std::string& prompt);

// True when the answer to `question` is yes.
bool says_yes(const std::string& question);

}  // namespace gpurun::tools
