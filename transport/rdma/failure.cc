// failure_text(): the meaning of a status, as ibv_poll_cq(3) and the InfiniBand
// specification, 11.6.2, give it.
#include "transport/rdma/failure.h"

namespace gpurun::transport::rdma {

const char* failure_text(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "the device refuses requests, or the other end broke the rules";
    case IBV_WC_RETRY_EXC_ERR:
      return "the other end's device does not answer";
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_FATAL_ERR:
      return "the queue pair is out of order, as when a port goes down";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ABORT_ERR:
      return "the other end's device refuses requests";
    default:
      return "the device reports a failed request";
  }
}

}  // namespace gpurun::transport::rdma
