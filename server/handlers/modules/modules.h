// Module handlers: handlers of modules, libraries and the kernels in them.
#pragma once

#include "server/handlers/modules/kernel_facts.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

// NOT_SUPPORTED for rows that name a file, which would be the worker's. A client reads its own file
// and sends the bytes.
CallOutcome refuse_file(Call& call);
// cuModuleUnload(CUmodule), cuLibraryUnload(CUlibrary): the row's ordinary record.
CallOutcome run_unload(Call& call);
// Loading and unloading: module_loads.cc. Names: module_names.cc.
void add_module_load_handlers(Handlers& handlers);
void add_module_name_handlers(Handlers& handlers);
// Launches by the kernel's layout, and queries about clusters: launches.cc.
void add_launch_handlers(Handlers& handlers);
// Attributes of kernel nodes and of streams: set_attributes.cc.
void add_attribute_handlers(Handlers& handlers);

// 0, or the CUresult if the client packed the block by a layout that is not this function's.
// `kernel` is the driver's value of the function.
int check_layout(const Call& call, const protocol::LaunchPayload& launch,
                 const DriverKernel& kernel);

}  // namespace gpurun::server
