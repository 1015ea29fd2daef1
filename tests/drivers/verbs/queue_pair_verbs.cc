// The verbs that create, modify, query and destroy QPs.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/drivers/verbs/completions.h"
#include "tests/drivers/verbs/nic.h"
#include "tests/drivers/verbs/queue_pair.h"
#include "tests/drivers/verbs/transitions.h"

namespace gpurun::verbs_double {
namespace {

constexpr int kNumberAttempts = 64;

// Binds a QP to a random number that is free in the fabric. Numbers 0 and 1 are special QPs.
bool take_number(Qp& qp) {
  for (int attempt = 0; attempt < kNumberAttempts; ++attempt) {
    const std::uint32_t number = 2 + static_cast<std::uint32_t>(nic().random()) % 0xfffffd;
    if (nic().qps.count(number) != 0) continue;
    qp.listener = bind_qp(nic().fabric, number);
    if (qp.listener >= 0) {
      qp.qp_num = number;
      qp.handle = number;
      return true;
    }
    if (errno != EADDRINUSE) return false;
  }
  return false;
}

bool caps_allowed(const DeviceSettings& device, const ibv_qp_cap& cap) {
  return cap.max_send_wr <= device.wr_max && cap.max_recv_wr <= device.wr_max &&
         cap.max_send_sge <= device.sge_max && cap.max_recv_sge <= device.sge_max &&
         cap.max_inline_data <= device.inline_max;
}

bool path_allowed(const Device& device, const ibv_ah_attr& path) {
  if (path.is_global == 0) {
    return device.settings.link == IBV_LINK_LAYER_INFINIBAND && !device.settings.needs_global;
  }
  return gid_of(device, path.grh.sgid_index) != nullptr;
}

bool values_allowed(const Qp& qp, const ibv_qp_attr& attr, int mask) {
  const Device& device = device_of(qp.context);
  const auto has = [&](int bit) { return (mask & bit) != 0; };
  if (has(IBV_QP_PORT) && (attr.port_num < 1 || attr.port_num > device.settings.ports))
    return false;
  if (has(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0) return false;
  if (has(IBV_QP_PATH_MTU) &&
      (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > device.settings.mtu)) {
    return false;
  }
  if (has(IBV_QP_AV) && !path_allowed(device, attr.ah_attr)) return false;
  if (has(IBV_QP_MAX_QP_RD_ATOMIC) && attr.max_rd_atomic > device.settings.reads_max) return false;
  if (has(IBV_QP_MAX_DEST_RD_ATOMIC) && attr.max_dest_rd_atomic > device.settings.reads_max) {
    return false;
  }
  if (has(IBV_QP_TIMEOUT) && attr.timeout > 31) return false;
  if (has(IBV_QP_RETRY_CNT) && attr.retry_cnt > 7) return false;
  if (has(IBV_QP_RNR_RETRY) && attr.rnr_retry > 7) return false;
  if (has(IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > 31) return false;
  return true;
}

void take_values(Qp& qp, const ibv_qp_attr& attr, int mask) {
  const auto has = [&](int bit) { return (mask & bit) != 0; };
  if (has(IBV_QP_PORT)) qp.set.port_num = attr.port_num;
  if (has(IBV_QP_PKEY_INDEX)) qp.set.pkey_index = attr.pkey_index;
  if (has(IBV_QP_ACCESS_FLAGS)) qp.set.qp_access_flags = attr.qp_access_flags;
  if (has(IBV_QP_AV)) qp.set.ah_attr = attr.ah_attr;
  if (has(IBV_QP_PATH_MTU)) qp.set.path_mtu = attr.path_mtu;
  if (has(IBV_QP_DEST_QPN)) qp.set.dest_qp_num = attr.dest_qp_num & 0xffffff;
  if (has(IBV_QP_RQ_PSN)) qp.set.rq_psn = attr.rq_psn & 0xffffff;
  if (has(IBV_QP_SQ_PSN)) qp.set.sq_psn = attr.sq_psn & 0xffffff;
  if (has(IBV_QP_MAX_DEST_RD_ATOMIC)) qp.set.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if (has(IBV_QP_MAX_QP_RD_ATOMIC)) qp.set.max_rd_atomic = attr.max_rd_atomic;
  if (has(IBV_QP_MIN_RNR_TIMER)) qp.set.min_rnr_timer = attr.min_rnr_timer;
  if (has(IBV_QP_TIMEOUT)) qp.set.timeout = attr.timeout;
  if (has(IBV_QP_RETRY_CNT)) qp.set.retry_cnt = attr.retry_cnt;
  if (has(IBV_QP_RNR_RETRY)) qp.set.rnr_retry = attr.rnr_retry;
}

// RESET forgets the work without completions.
void reset(Qp& qp) {
  qp.closing = false;
  disconnect(qp);
  qp.requests.clear();
  qp.receives.clear();
  drop_completions(*static_cast<Cq*>(qp.send_cq), qp.qp_num);
  drop_completions(*static_cast<Cq*>(qp.recv_cq), qp.qp_num);
  qp.send_used = qp.slots_owed = qp.receive_used = qp.receive_slots_owed = 0;
  qp.next_sequence = 0;
  qp.cut = qp.stopped = false;
  qp.served = false;
  qp.state = IBV_QPS_RESET;
}

void enter(Qp& qp, ibv_qp_state state) {
  if (state == IBV_QPS_RESET) {
    reset(qp);
  } else if (state == IBV_QPS_ERR) {
    qp.closing = false;
    move_to_error(qp);
  } else {
    if (state == IBV_QPS_RTS) qp.next_attempt = Clock::now();
    qp.state = state;
    if (device_of(qp.context).port_down[qp.set.port_num - 1U]) qp.cut = true;
  }
}

}  // namespace
}  // namespace gpurun::verbs_double

using namespace gpurun::verbs_double;

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* wanted) {
  const Lock lock(nic().mutex);
  const DeviceSettings& device = device_of(pd->context).settings;
  if (wanted->qp_type != IBV_QPT_RC) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if (wanted->srq != nullptr || wanted->send_cq == nullptr || wanted->recv_cq == nullptr ||
      !caps_allowed(device, wanted->cap)) {
    errno = EINVAL;
    return nullptr;
  }
  auto qp = std::make_unique<Qp>();
  if (!take_number(*qp)) return nullptr;
  qp->context = pd->context;
  qp->qp_context = wanted->qp_context;
  qp->pd = pd;
  qp->send_cq = wanted->send_cq;
  qp->recv_cq = wanted->recv_cq;
  qp->qp_type = IBV_QPT_RC;
  qp->state = IBV_QPS_RESET;
  qp->owner = static_cast<Context*>(verbs_get_ctx(pd->context));
  qp->cap = wanted->cap;
  qp->all_signaled = wanted->sq_sig_all != 0;
  pthread_mutex_init(&qp->mutex, nullptr);
  pthread_cond_init(&qp->cond, nullptr);
  ++static_cast<Pd*>(pd)->users;
  ++static_cast<Cq*>(qp->send_cq)->users;
  ++static_cast<Cq*>(qp->recv_cq)->users;
  nic().qps.emplace(qp->qp_num, qp.get());
  return qp.release();
}

int ibv_modify_qp(ibv_qp* visible, ibv_qp_attr* attr, int mask) {
  auto& qp = *static_cast<Qp*>(visible);
  const Lock lock(nic().mutex);
  if ((mask & IBV_QP_CUR_STATE) != 0 && attr->cur_qp_state != qp.state) return EINVAL;
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : qp.state;
  if (!may_modify(qp.state, to, mask) || !values_allowed(qp, *attr, mask)) return EINVAL;
  take_values(qp, *attr, mask);
  if (to != qp.state || to == IBV_QPS_RESET) enter(qp, to);
  wake_nic();
  return 0;
}

int ibv_query_qp(ibv_qp* visible, ibv_qp_attr* attr, int, ibv_qp_init_attr* init) {
  const auto& qp = *static_cast<Qp*>(visible);
  const Lock lock(nic().mutex);
  *attr = qp.set;
  attr->qp_state = attr->cur_qp_state = qp.state;
  attr->cap = qp.cap;
  *init = {};
  init->qp_context = qp.qp_context;
  init->send_cq = qp.send_cq;
  init->recv_cq = qp.recv_cq;
  init->cap = qp.cap;
  init->qp_type = qp.qp_type;
  init->sq_sig_all = qp.all_signaled ? 1 : 0;
  return 0;
}

int ibv_destroy_qp(ibv_qp* visible) {
  auto* qp = static_cast<Qp*>(visible);
  Lock lock(nic().mutex);
  qp->closing = false;
  disconnect(*qp);
  unbind_qp(qp->listener, nic().fabric, qp->qp_num);
  nic().qps.erase(qp->qp_num);
  drop_completions(*static_cast<Cq*>(qp->send_cq), qp->qp_num);
  drop_completions(*static_cast<Cq*>(qp->recv_cq), qp->qp_num);
  wake_nic();
  nic().acknowledged.wait(lock, [&] { return qp->events_completed == qp->async_events; });
  --static_cast<Pd*>(qp->pd)->users;
  --static_cast<Cq*>(qp->send_cq)->users;
  --static_cast<Cq*>(qp->recv_cq)->users;
  pthread_mutex_destroy(&qp->mutex);
  pthread_cond_destroy(&qp->cond);
  delete qp;
  return 0;
}
