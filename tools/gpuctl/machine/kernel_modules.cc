// Kernel modules: the first word of each line is a name.
#include "tools/gpuctl/machine/kernel_modules.h"

#include <vector>

namespace gpurun::tools {

std::size_t module_started_as(const SystemFiles& files, const std::string& name) {
  const std::vector<std::string> lines = lines_of(files.text("/proc/modules").value_or(""));
  for (std::size_t at = 0; at < lines.size(); ++at) {
    if (lines[at].substr(0, lines[at].find(' ')) == name) return lines.size() - at;
  }
  return 0;
}

}  // namespace gpurun::tools
