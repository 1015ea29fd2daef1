// Fabric checks: RDMA libraries, ports and modules, and the way between network devices and GPUs.
#pragma once

#include <string>

#include "base/system_files.h"
#include "tools/gpuctl/health/check.h"

namespace gpurun::tools {

// The files behind libibverbs.so.1 and librdmacm.so.1. Empty: the loader does not find them.
struct VerbsLibraries {
  std::string verbs, connection_manager;
};
VerbsLibraries find_verbs_libraries();

// Faults of RDMA are warnings as long as no transport of this build uses it (known_transports.h).
Checks fabric_checks(const SystemFiles& files, const VerbsLibraries& libraries);

}  // namespace gpurun::tools
