// Worlds over RDMA, on the verbs double (tests/drivers/verbs).
#pragma once

#include <vector>

#include "tests/conformance/worlds.h"

namespace gpurun::transport {

// "rdma", "faulty_rdma" (harmless faults above it), "rdma_pvrdma" (no inline data, immediates are
// lost), "rdma_send_only" (no RDMA requests), "rdma_small" (messages and queues are short),
// "changing_rdma" (both ends leave and enter it at random), and "failing_rdma" (queue pairs fail at
// random requests). Empty: this build has no headers of verbs.
std::vector<WorldKind> rdma_worlds();

}  // namespace gpurun::transport
