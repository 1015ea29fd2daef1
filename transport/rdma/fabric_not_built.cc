// Fabric of a build without the headers of verbs.
#include "transport/rdma/fabric.h"

namespace gpurun::transport::rdma {

Result<std::unique_ptr<Fabric>> open_fabric(const AllowedPorts&, std::vector<Rejected>*) {
  return Status(Code::kUnavailable,
                "RDMA is not built in: infiniband/verbs.h (libibverbs-dev) was not there");
}

}  // namespace gpurun::transport::rdma
