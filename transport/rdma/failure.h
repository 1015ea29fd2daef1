// failure_text(): the failure of a queue pair, for people.
#pragma once

#include <infiniband/verbs.h>

namespace gpurun::transport::rdma {

// `status`: of the completion that failed first. IBV_WC_SUCCESS: no completion has failed.
const char* failure_text(ibv_wc_status status) noexcept;

}  // namespace gpurun::transport::rdma
