// Posts of send requests and receives.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/drivers/verbs/counters.h"
#include "tests/drivers/verbs/nic.h"
#include "tests/drivers/verbs/queue_pair.h"
#include "tests/drivers/verbs/registration.h"

namespace gpurun::verbs_double {
namespace {

struct Posted {
  ibv_wr_opcode opcode;
  RequestKind kind;
  std::uint64_t verbs_double_counts::*counter;
};

constexpr Posted kPosted[] = {
    {IBV_WR_SEND, RequestKind::kSend, &verbs_double_counts::posted_send},
    {IBV_WR_SEND_WITH_IMM, RequestKind::kSendImm, &verbs_double_counts::posted_send_imm},
    {IBV_WR_RDMA_WRITE, RequestKind::kWrite, &verbs_double_counts::posted_write},
    {IBV_WR_RDMA_WRITE_WITH_IMM, RequestKind::kWriteImm, &verbs_double_counts::posted_write_imm},
    {IBV_WR_RDMA_READ, RequestKind::kRead, &verbs_double_counts::posted_read}};

const Posted* posted_of(const DeviceSettings& device, ibv_wr_opcode opcode) {
  for (const Posted& posted : kPosted) {
    if (posted.opcode != opcode) continue;
    const bool sends = posted.kind == RequestKind::kSend || posted.kind == RequestKind::kSendImm;
    return sends || device.rdma ? &posted : nullptr;
  }
  return nullptr;
}

template <typename WorkRequest>
bool pieces_fit(const WorkRequest& wr, std::uint32_t most) {
  return wr.num_sge >= 0 && static_cast<std::uint32_t>(wr.num_sge) <= most;
}

// Copies the data of an inline request, as ibv_post_send does before it returns.
void copy_inline(SendRequest& request) {
  for (const ibv_sge& piece : request.pieces) {
    const auto* from = reinterpret_cast<const std::byte*>(piece.addr);
    request.inline_data.insert(request.inline_data.end(), from, from + piece.length);
  }
  request.pieces.clear();
  count(&verbs_double_counts::posted_inline);
  count(&verbs_double_counts::inline_bytes, request.inline_data.size());
}

// Returns 0 and fills the request, or the errno.
int make_request(Qp& qp, const ibv_send_wr& wr, SendRequest& request) {
  const DeviceSettings& device = device_of(qp.context).settings;
  const Posted* posted = posted_of(device, wr.opcode);
  if (posted == nullptr || !pieces_fit(wr, qp.cap.max_send_sge)) return EINVAL;
  request.kind = posted->kind;
  request.pieces.assign(wr.sg_list, wr.sg_list + wr.num_sge);
  request.length = length_of(request.pieces);
  request.is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  const bool reads = request.kind == RequestKind::kRead;
  if (request.length > device.message_max) return EINVAL;
  if (request.is_inline && (reads || request.length > qp.cap.max_inline_data)) return EINVAL;
  if (qp.send_used >= qp.cap.max_send_wr) return ENOMEM;
  if (const int error = nic().faults.post_error(request.kind)) return error;
  request.id = wr.wr_id;
  request.signaled = qp.all_signaled || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  request.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0;
  request.fence = (wr.send_flags & IBV_SEND_FENCE) != 0;
  request.planned = nic().faults.status(request.kind);
  request.lost = nic().faults.loses(request.kind);
  request.immediate = wr.imm_data;
  request.address = wr.wr.rdma.remote_addr;
  request.key = wr.wr.rdma.rkey;
  request.leaves = Clock::now() + std::chrono::microseconds(nic().faults.delay_us());
  count(posted->counter);
  count(&verbs_double_counts::posted_bytes, request.length);
  if (request.kind == RequestKind::kWrite) {
    count(&verbs_double_counts::written_bytes, request.length);
  }
  if (request.signaled) count(&verbs_double_counts::posted_signaled);
  if (request.is_inline) copy_inline(request);
  return 0;
}

int post_one_send(Qp& qp, const ibv_send_wr& wr) {
  if (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_ERR) return EINVAL;
  SendRequest request;
  if (const int error = make_request(qp, wr, request)) return error;
  const std::uint64_t length = request.length;
  qp.requests.push_back(std::move(request));
  ++qp.send_used;
  if (qp.state == IBV_QPS_ERR) finish_send(qp, IBV_WC_WR_FLUSH_ERR);
  run_triggered(nic().faults.triggered(1, length), &qp);
  return 0;
}

int post_one_receive(Qp& qp, const ibv_recv_wr& wr) {
  if (qp.state == IBV_QPS_RESET || !pieces_fit(wr, qp.cap.max_recv_sge)) return EINVAL;
  if (qp.receive_used >= qp.cap.max_recv_wr) return ENOMEM;
  if (const int error = nic().faults.post_error(RequestKind::kRecv)) return error;
  count(&verbs_double_counts::posted_recv);
  qp.receives.push_back({wr.wr_id, {wr.sg_list, wr.sg_list + wr.num_sge}});
  ++qp.receive_used;
  if (qp.state == IBV_QPS_ERR) {
    ibv_wc wc{};
    wc.status = IBV_WC_WR_FLUSH_ERR;
    wc.opcode = IBV_WC_RECV;
    finish_receive(qp, wc, false);
  }
  return 0;
}

}  // namespace

int post_send(ibv_qp* visible, ibv_send_wr* first, ibv_send_wr** bad) {
  auto& qp = *static_cast<Qp*>(visible);
  const Lock lock(nic().mutex);
  count(&verbs_double_counts::post_calls);
  int error = 0;
  for (ibv_send_wr* wr = first; wr != nullptr && error == 0; wr = wr->next) {
    error = post_one_send(qp, *wr);
    if (error != 0) *bad = wr;
  }
  wake_nic();
  return error;
}

int post_receive(ibv_qp* visible, ibv_recv_wr* first, ibv_recv_wr** bad) {
  auto& qp = *static_cast<Qp*>(visible);
  const Lock lock(nic().mutex);
  int error = 0;
  for (ibv_recv_wr* wr = first; wr != nullptr && error == 0; wr = wr->next) {
    error = post_one_receive(qp, *wr);
    if (error != 0) *bad = wr;
  }
  if (qp.waiting) wake_nic();
  return error;
}

}  // namespace gpurun::verbs_double
