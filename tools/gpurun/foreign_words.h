// Words that users of other GPU forwarders, or of gpuctl, write in the place of the program.
#pragma once

#include <string>
#include <vector>

namespace gpurun::tools {

// What to write in place of `command`, whose first word is no program that exists: "; gpurun has no
// subcommand ...". Empty: nothing is known of it.
std::string instead_of(const std::vector<std::string>& command);

}  // namespace gpurun::tools
