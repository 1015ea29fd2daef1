// Fabric of a build without the headers of verbs.
#include "transport/rdma/fabric.h"
#include "transport/rdma/survey.h"

namespace gpurun::transport::rdma {

const char* why_not_built() noexcept {
  return "RDMA is not built in: infiniband/verbs.h (libibverbs-dev) was not there";
}

Result<std::unique_ptr<Fabric>> open_fabric(const AllowedPorts&, std::vector<Rejected>*,
                                            const NearTo&, const Gid*, const DescriptorPlace&) {
  return Status(Code::kUnavailable, why_not_built());
}

Survey survey(const AllowedPorts&) { return {{}, why_not_built(), {}, {}}; }

}  // namespace gpurun::transport::rdma
