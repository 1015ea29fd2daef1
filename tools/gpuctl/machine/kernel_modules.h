// Kernel modules: those that this machine has loaded, as /proc/modules lists them.
#pragma once

#include <cstddef>
#include <string>

#include "base/system_files.h"

namespace gpurun::tools {

// The place of a module in the order of starts, from 1. 0: it is not loaded. /proc/modules lists
// the module that started last first.
std::size_t module_started_as(const SystemFiles& files, const std::string& name);

}  // namespace gpurun::tools
