// Transitions: what ibv_modify_qp(3) asks for in each state.
#include "transport/rdma/transitions.h"

#include <algorithm>
#include <cstring>

#include "base/random.h"

namespace gpurun::transport::rdma {

int to_init(const Port& port, bool lends, ibv_qp_attr* attributes) noexcept {
  *attributes = {};
  attributes->qp_state = IBV_QPS_INIT;
  attributes->port_num = port.number;
  attributes->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (lends) attributes->qp_access_flags |= IBV_ACCESS_REMOTE_READ;
  return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
}

int to_receive(const Port& port, const Offer& theirs, std::uint8_t reads,
               ibv_qp_attr* attributes) noexcept {
  *attributes = {};
  attributes->qp_state = IBV_QPS_RTR;
  attributes->path_mtu = std::min(port.mtu, static_cast<ibv_mtu>(theirs.mtu));
  attributes->dest_qp_num = theirs.queue_pair;
  attributes->rq_psn = theirs.packet_number;
  attributes->max_dest_rd_atomic = reads;
  attributes->min_rnr_timer = kReceiverTimer;
  attributes->ah_attr.port_num = port.number;
  attributes->ah_attr.dlid = theirs.lid;
  attributes->ah_attr.sl = port.packets.service_level;
  // RoCE always has a global header. On InfiniBand both ends have it if a port of either needs it,
  // because a queue pair drops packets of the other form (InfiniBand specification, 9.6.1.2).
  const bool is_global =
      port.link != Link::kInfiniBand || port.needs_global || theirs.needs_global != 0;
  attributes->ah_attr.is_global = is_global ? 1 : 0;
  attributes->ah_attr.grh.sgid_index = port.gid_index;
  attributes->ah_attr.grh.hop_limit = 64;
  attributes->ah_attr.grh.traffic_class = port.packets.traffic_class;
  std::memcpy(attributes->ah_attr.grh.dgid.raw, theirs.gid.data(), theirs.gid.size());
  return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

int to_send(const Offer& ours, std::uint8_t reads, ibv_qp_attr* attributes) noexcept {
  *attributes = {};
  attributes->qp_state = IBV_QPS_RTS;
  attributes->timeout = kAckTimeout;
  attributes->retry_cnt = kRetries;
  attributes->rnr_retry = kReceiverRetries;
  attributes->sq_psn = ours.packet_number;
  attributes->max_rd_atomic = reads;
  return IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
         IBV_QP_MAX_QP_RD_ATOMIC;
}

int to_error(ibv_qp_attr* attributes) noexcept {
  *attributes = {};
  attributes->qp_state = IBV_QPS_ERR;
  return IBV_QP_STATE;
}

Result<std::uint32_t> random_packet_number() {
  std::uint32_t number = 0;
  GPURUN_RETURN_IF_ERROR(fill_random(mutable_bytes(&number, sizeof number)));
  return number & 0xffffff;
}

}  // namespace gpurun::transport::rdma
