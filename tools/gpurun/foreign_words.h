// Foreign words: what users of other GPU forwarders, or of gpuctl, write in place of the program.
#pragma once

#include <string>
#include <vector>

namespace gpurun::tools {

// What to write in place of `command`, when its first word is not an existing program: "; gpurun
// has no subcommand ...". Empty: no advice.
std::string instead_of(const std::vector<std::string>& command);

}  // namespace gpurun::tools
