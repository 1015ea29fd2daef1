// Handlers of modules, libraries and the kernels in them.
#pragma once

#include "server/call.h"

namespace gpurun::server {

// Loading and unloading: module_loads.cc. Names: module_names.cc.
void add_module_load_handlers(Handlers& handlers);
void add_module_name_handlers(Handlers& handlers);
// Launches by the kernel's layout, and questions about clusters: launches.cc.
void add_launch_handlers(Handlers& handlers);

}  // namespace gpurun::server
