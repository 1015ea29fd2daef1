// Completion of a QP's work, and its end.
#include "tests/drivers/verbs/queue_pair.h"

#include <utility>

#include "tests/drivers/verbs/completions.h"
#include "tests/drivers/verbs/responder.h"

namespace gpurun::verbs_double {
namespace {

ibv_wc_opcode opcode_of(RequestKind kind) {
  switch (kind) {
    case RequestKind::kWrite:
    case RequestKind::kWriteImm:
      return IBV_WC_RDMA_WRITE;
    case RequestKind::kRead:
      return IBV_WC_RDMA_READ;
    default:
      return IBV_WC_SEND;
  }
}

}  // namespace

void finish_send(Qp& qp, ibv_wc_status status) {
  const SendRequest request = std::move(qp.requests.front());
  qp.requests.pop_front();
  if (qp.started > 0) {
    --qp.started;
    if (request.kind == RequestKind::kRead) --qp.reads_started;
  }
  ++qp.slots_owed;
  const bool reported = request.signaled || status != IBV_WC_SUCCESS;
  if (!reported || request.lost) return;
  Entry entry;
  entry.wc.wr_id = request.id;
  entry.wc.status = status;
  entry.wc.opcode = opcode_of(request.kind);
  entry.wc.byte_len = static_cast<std::uint32_t>(request.length);
  entry.wc.qp_num = qp.qp_num;
  entry.send_slots = std::exchange(qp.slots_owed, 0);
  add_completion(*static_cast<Cq*>(qp.send_cq), entry, false);
}

void finish_receive(Qp& qp, ibv_wc wc, bool solicited) {
  wc.wr_id = qp.receives.front().id;
  wc.qp_num = qp.qp_num;
  qp.receives.pop_front();
  ++qp.receive_slots_owed;
  if (wc.status != IBV_WC_WR_FLUSH_ERR) {
    if (const auto planned = nic().faults.status(RequestKind::kRecv)) wc.status = *planned;
    if (nic().faults.loses(RequestKind::kRecv)) return;
  }
  Entry entry;
  entry.wc = wc;
  entry.receive_slots = std::exchange(qp.receive_slots_owed, 0);
  add_completion(*static_cast<Cq*>(qp.recv_cq), entry, solicited);
}

void disconnect(Qp& qp) {
  place_all(qp);
  qp.out.close();
  qp.link = Qp::Link::kApart;
  qp.started = 0;
  qp.reads_started = 0;
  qp.lost_at.reset();
  qp.last_attempt = false;
  qp.not_ready_at.reset();
  qp.waiting.reset();
  if (qp.closing && qp.in.is_open()) return;
  qp.in.close();
  qp.welcomed = false;
}

void cut(Qp& qp) {
  qp.cut = true;
  qp.out.close();
  qp.in.close();
  qp.welcomed = false;
  qp.waiting.reset();
  if (qp.link != Qp::Link::kApart) qp.link = Qp::Link::kLost;
}

void move_to_error(Qp& qp) {
  if (qp.state == IBV_QPS_ERR) return;
  qp.state = IBV_QPS_ERR;
  disconnect(qp);
  while (!qp.requests.empty()) finish_send(qp, IBV_WC_WR_FLUSH_ERR);
  while (!qp.receives.empty()) {
    ibv_wc wc{};
    wc.status = IBV_WC_WR_FLUSH_ERR;
    wc.opcode = IBV_WC_RECV;
    finish_receive(qp, wc, false);
  }
}

}  // namespace gpurun::verbs_double
