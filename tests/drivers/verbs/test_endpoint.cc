// An endpoint of the verbs double's tests.
#include "tests/drivers/verbs/test_endpoint.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <random>
#include <stdexcept>

namespace gpurun::verbs_double {

const char* const kLibraryPath = VERBS_DOUBLE;

namespace {

const TestLibrary& library() { return TestLibrary::get(); }

ibv_context* open_first() {
  int number = 0;
  ibv_device** list = library().get_device_list(&number);
  if (list == nullptr || number == 0) throw std::runtime_error("no device");
  ibv_context* context = library().open_device(list[0]);
  library().free_device_list(list);
  if (context == nullptr) throw std::runtime_error("the device does not open");
  return context;
}

}  // namespace

Settings::Settings(const std::string& devices, const std::string& faults) {
  std::random_device random;
  const std::string fabric = std::to_string(getpid()) + "-" + std::to_string(random());
  setenv("VERBS_DOUBLE_FABRIC", fabric.c_str(), 1);
  setenv("VERBS_DOUBLE_DEVICES", devices.c_str(), 1);
  setenv("VERBS_DOUBLE_FAULTS", faults.c_str(), 1);
}

Settings::~Settings() {
  unsetenv("VERBS_DOUBLE_DEVICES");
  unsetenv("VERBS_DOUBLE_FAULTS");
}

bool readable(int descriptor, int milliseconds) {
  pollfd one{descriptor, POLLIN, 0};
  return poll(&one, 1, milliseconds) == 1;
}

Endpoint::Endpoint(const EndpointOptions& options)
    : context(open_first()), memory(kMemory), options_(options) {
  pd = library().alloc_pd(context);
  channel = library().create_comp_channel(context);
  cq = library().create_cq(context, options_.completions, this, channel, 0);
  region = library().reg_mr(pd, memory.data(), memory.size(), static_cast<int>(options_.access));
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = options_.depth;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 4;
  attr.cap.max_inline_data = options_.inline_bytes;
  qp = library().create_qp(pd, &attr);
  if (cq == nullptr || region == nullptr || qp == nullptr) {
    throw std::runtime_error("no CQ, no memory or no QP");
  }
}

Endpoint::~Endpoint() {
  library().destroy_qp(qp);
  library().dereg_mr(region);
  library().destroy_cq(cq);
  library().destroy_comp_channel(channel);
  library().dealloc_pd(pd);
  library().close_device(context);
}

Numbers Endpoint::numbers() const {
  Numbers own;
  own.qp = qp->qp_num;
  own.psn = 1000 + qp->qp_num % 1000;
  own.key = region->rkey;
  own.address = reinterpret_cast<std::uint64_t>(memory.data());
  library().query_gid(context, 1, static_cast<int>(options_.gid_index), &own.gid);
  ibv_port_attr port{};
  verbs_get_ctx(context)->query_port(context, 1, &port, sizeof(port));
  own.lid = port.lid;
  return own;
}

int Endpoint::to_init() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = options_.access;
  return library().modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int Endpoint::to_ready_to_receive(const Numbers& peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer.qp;
  attr.rq_psn = peer.psn;
  attr.max_dest_rd_atomic = options_.reads;
  attr.min_rnr_timer = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.is_global = options_.by_gid ? 1 : 0;
  attr.ah_attr.dlid = peer.lid;
  attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(options_.gid_index);
  attr.ah_attr.grh.dgid = peer.gid;
  return library().modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int Endpoint::to_ready_to_send() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = numbers().psn;
  attr.timeout = options_.timeout;
  attr.retry_cnt = options_.retries;
  attr.rnr_retry = options_.not_ready_retries;
  attr.max_rd_atomic = options_.reads;
  return library().modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

int Endpoint::to_state(ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return library().modify_qp(qp, &attr, IBV_QP_STATE);
}

void Endpoint::connect(const Numbers& peer) {
  if (to_init() != 0 || to_ready_to_receive(peer) != 0 || to_ready_to_send() != 0) {
    throw std::runtime_error("the QP does not become ready");
  }
}

ibv_sge Endpoint::piece(std::size_t offset, std::uint32_t length) const {
  return {reinterpret_cast<std::uint64_t>(memory.data()) + offset, length, region->lkey};
}

int Endpoint::post(ibv_qp* qp, ibv_send_wr& request) {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp, &request, &bad);
  if ((error != 0) != (bad != nullptr)) throw std::runtime_error("bad_wr does not fit the error");
  return error;
}

int Endpoint::receive(std::uint64_t id, std::size_t offset, std::uint32_t length) {
  ibv_sge one = piece(offset, length);
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = &one;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &request, &bad);
}

int Endpoint::send(std::uint64_t id, std::size_t offset, std::uint32_t length, unsigned flags,
                   std::optional<std::uint32_t> immediate) {
  ibv_sge one = piece(offset, length);
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = &one;
  request.num_sge = 1;
  request.opcode = immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
  request.send_flags = flags;
  request.imm_data = immediate.value_or(0);
  return post(qp, request);
}

int Endpoint::write(std::uint64_t id, std::size_t offset, std::uint32_t length, const Numbers& peer,
                    std::size_t peer_offset, unsigned flags,
                    std::optional<std::uint32_t> immediate) {
  ibv_sge one = piece(offset, length);
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = &one;
  request.num_sge = 1;
  request.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.send_flags = flags;
  request.imm_data = immediate.value_or(0);
  request.wr.rdma.remote_addr = peer.address + peer_offset;
  request.wr.rdma.rkey = peer.key;
  return post(qp, request);
}

int Endpoint::read(std::uint64_t id, std::size_t offset, std::uint32_t length, const Numbers& peer,
                   std::size_t peer_offset) {
  ibv_sge one = piece(offset, length);
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = &one;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_READ;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = peer.address + peer_offset;
  request.wr.rdma.rkey = peer.key;
  return post(qp, request);
}

ibv_wc Endpoint::next() {
  ibv_wc wc{};
  for (;;) {
    if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
    ibv_req_notify_cq(cq, 0);
    if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
    if (!readable(channel->fd)) break;
    ibv_cq* which = nullptr;
    void* cookie = nullptr;
    if (library().get_cq_event(channel, &which, &cookie) != 0) break;
    library().ack_cq_events(which, 1);
  }
  wc.status = IBV_WC_GENERAL_ERR;
  return wc;
}

bool Endpoint::quiet() {
  ibv_wc wc{};
  return ibv_poll_cq(cq, 1, &wc) == 0;
}

std::optional<ibv_event_type> Endpoint::event() {
  ibv_async_event event{};
  if (!readable(context->async_fd) || library().get_async_event(context, &event) != 0) return {};
  library().ack_async_event(&event);
  return event.event_type;
}

ibv_qp_state Endpoint::state() const {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  library().query_qp(qp, &attr, IBV_QP_STATE, &init);
  return attr.qp_state;
}

void connect(Endpoint& one, Endpoint& other) {
  const Numbers first = one.numbers();
  one.connect(other.numbers());
  other.connect(first);
}

}  // namespace gpurun::verbs_double
