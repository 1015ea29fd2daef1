// Fabric checks: RDMA libraries, ports and modules, and the way between network devices and GPUs.
#pragma once

#include <string>

#include "base/system_files.h"
#include "tools/gpuctl/health/check.h"
#include "transport/rdma/allowed_ports.h"

namespace gpurun::tools {

// The files behind libibverbs.so.1 and librdmacm.so.1. Empty: the loader does not find them.
struct VerbsLibraries {
  std::string verbs, connection_manager;
};
VerbsLibraries find_verbs_libraries();

// `allowed`: the ports that the user trusts and selects. A fault is a failure where the user trusts
// a fabric and no such port works, and otherwise a warning.
Checks fabric_checks(const SystemFiles& files, const VerbsLibraries& libraries,
                     const transport::rdma::AllowedPorts& allowed);

}  // namespace gpurun::tools
