// QueuePair: RESET, INIT, RTR, RTS (InfiniBand specification, 10.3.1).
#include "transport/rdma/queue_pair.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/random.h"
#include "transport/rdma/transitions.h"

namespace gpurun::transport::rdma {
namespace {

// Tried in this order. A device has no query for it, and refuses too much (ibv_create_qp(3)). Most
// frames of a log have less than the first, and the device then need not read them from memory.
constexpr std::uint32_t kInlineTried[] = {256, 128, 64, 0};

// One message over a ring that is written. So the receiver copies while the next one comes. A chunk
// of 64 KiB with its head fits.
constexpr std::uint32_t kStepBytes = std::uint32_t{128} << 10;

}  // namespace

Status QueuePair::refused(const char* what, int error) const {
  return Status(Code::kUnavailable,
                port_.name() + ": " + what + ": " + std::generic_category().message(error));
}

Result<std::unique_ptr<QueuePair>> QueuePair::make(const Port& port, std::uint32_t ring_bytes,
                                                   Role role) {
  std::unique_ptr<QueuePair> made(new QueuePair(port, role));
  GPURUN_RETURN_IF_ERROR(made->make_objects(ring_bytes));
  return made;
}

Status QueuePair::make_channel(Channel* channel) {
  {
    const ForksHeldOff held(port_.device->place());
    channel->verbs = ibv_create_comp_channel(port_.device->context());
    if (channel->verbs == nullptr) return refused("no completion channel", errno);
    channel->descriptor.take(&channel->verbs->fd, port_.device->place());
  }
  const int fd = channel->verbs->fd;
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return refused("its completion channel blocks", errno);
  }
  return {};
}

Status QueuePair::make_queue_pair() {
  ibv_qp_init_attr wanted = {};
  wanted.send_cq = requests_;
  wanted.recv_cq = receives_;
  wanted.qp_type = IBV_QPT_RC;
  for (const std::uint32_t inline_bytes : kInlineTried) {
    wanted.cap = {kSends, offer_.receives, 1, 1, inline_bytes};
    qp_ = ibv_create_qp(pd_, &wanted);
    if (qp_ != nullptr) break;
  }
  if (qp_ == nullptr) return refused("no queue pair", errno);
  inline_bytes_max_ = wanted.cap.max_inline_data;
  ibv_qp_attr attributes = {};
  const int mask = to_init(port_, role_ != Role::kReads && port_.reads != 0, &attributes);
  return change(attributes, mask, "start");
}

Status QueuePair::make_objects(std::uint32_t ring_bytes) {
  if (!port_.device->check()) return refused("no queue pair", EBADF);
  ibv_context* const context = port_.device->context();
  offer_.receives = std::min({kReceives, port_.requests_max, port_.completions_max});
  if (offer_.receives < kReceivesMin ||
      std::min(port_.requests_max, port_.completions_max) < kSends) {
    return Status(Code::kUnavailable, port_.name() + ": its queues are too short");
  }
  pd_ = ibv_alloc_pd(context);
  if (pd_ == nullptr) return refused("no protection domain", errno);
  Result<Memory> memory = Memory::make(pd_, ring_bytes);
  if (!memory.ok()) {
    return Status(memory.status().code(), port_.name() + ": " + memory.status().message());
  }
  memory_ = *std::move(memory);
  GPURUN_RETURN_IF_ERROR(make_channel(&channel_));
  if (role_ != Role::kLends && port_.reads != 0) {
    GPURUN_RETURN_IF_ERROR(make_channel(&requests_channel_));
  }
  // What comes wakes the receiver alone. The end of a request wakes a thread that waits for reads.
  requests_ = ibv_create_cq(context, static_cast<int>(kSends), nullptr, requests_channel_.verbs, 0);
  receives_ = ibv_create_cq(context, static_cast<int>(offer_.receives), nullptr, channel_.verbs, 0);
  if (requests_ == nullptr || receives_ == nullptr) return refused("no completion queue", errno);
  GPURUN_RETURN_IF_ERROR(make_queue_pair());
  Result<std::uint32_t> number = random_packet_number();
  if (!number.ok()) return number.status();
  offer_.packet_number = *number;
  offer_.queue_pair = qp_->qp_num;
  offer_.rkey = memory_.in_rkey();
  offer_.ring = reinterpret_cast<std::uint64_t>(memory_.in());
  offer_.ring_bytes = ring_bytes;
  offer_.gid = port_.gid;
  offer_.lid = port_.lid;
  offer_.partition = port_.partition;
  offer_.mtu = static_cast<std::uint8_t>(port_.mtu);
  offer_.link = static_cast<std::uint8_t>(port_.link);
  offer_.writes = port_.writes ? 1 : 0;
  offer_.needs_global = port_.needs_global ? 1 : 0;
  offer_.reads = port_.reads;
  return {};
}

QueuePair::~QueuePair() {
  port_.device->check();
  if (qp_ != nullptr) ibv_destroy_qp(qp_);
  if (requests_ != nullptr) ibv_destroy_cq(requests_);
  if (receives_ != nullptr) ibv_destroy_cq(receives_);
  destroy(&channel_);
  destroy(&requests_channel_);
  memory_ = Memory();
  regions_.clear();
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
}

void QueuePair::destroy(Channel* channel) noexcept {
  if (channel->verbs == nullptr) return;
  const ForksHeldOff held(port_.device->place());
  channel->descriptor.give_back();
  ibv_destroy_comp_channel(channel->verbs);
}

Result<RegionKeys> QueuePair::register_memory(std::byte* start, std::size_t bytes, int access) {
  if (!port_.device->check()) return refused("no memory can be registered", EBADF);
  return regions_.add(pd_, start, bytes, access);
}

Status QueuePair::change(ibv_qp_attr& attributes, int mask, const char* to) {
  const int error = ibv_modify_qp(qp_, &attributes, mask);
  if (error == 0) return {};
  return refused((std::string("its queue pair cannot ") + to).c_str(), error);
}

Status QueuePair::connect(const Offer& theirs) {
  if (!port_.device->check()) return refused("its queue pair cannot start", EBADF);
  GPURUN_RETURN_IF_ERROR(check_offer(theirs));
  GPURUN_RETURN_IF_ERROR(check_match(offer_, theirs));
  theirs_ = theirs;
  step_bytes_ = std::min(
      {kStepBytes, port_.message_bytes_max, writes() ? kStepBytes : theirs_.ring_bytes / kSlots});
  if (step_bytes_ == 0) return Status(Code::kUnavailable, port_.name() + ": it takes no messages");
  for (std::uint32_t i = 0; i < receives(); ++i) {
    if (!post_receive(i)) return refused("no receive can be posted", errno);
  }
  ibv_qp_attr attributes = {};
  int mask = to_receive(port_, theirs, reads(), &attributes);
  GPURUN_RETURN_IF_ERROR(change(attributes, mask, "reach the other end"));
  mask = to_send(offer_, reads(), &attributes);
  return change(attributes, mask, "send");
}

bool QueuePair::bring(const std::byte* from, std::uint32_t bytes, std::size_t offset,
                      std::uint32_t immediate, std::uint64_t id) noexcept {
  ibv_sge piece = {reinterpret_cast<std::uint64_t>(from), bytes, memory_.out_lkey()};
  ibv_send_wr request = {};
  request.wr_id = id;
  request.sg_list = &piece;
  request.num_sge = bytes != 0 ? 1 : 0;
  request.opcode = writes() ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(immediate);
  if (id != 0) request.send_flags |= IBV_SEND_SIGNALED;
  if (bytes != 0 && bytes <= inline_bytes_max_) request.send_flags |= IBV_SEND_INLINE;
  if (writes()) {
    request.wr.rdma.remote_addr = theirs_.ring + offset;
    request.wr.rdma.rkey = theirs_.rkey;
  }
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp_, &request, &bad) == 0;
}

bool QueuePair::post_remote(ibv_wr_opcode opcode, ibv_sge piece, std::uint64_t address,
                            std::uint32_t key, std::uint64_t id) noexcept {
  ibv_send_wr request = {};
  request.wr_id = id;
  request.sg_list = &piece;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = key;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp_, &request, &bad) == 0;
}

bool QueuePair::read(std::byte* into, std::uint32_t local_key, std::uint64_t from,
                     std::uint32_t key, std::uint32_t bytes, std::uint64_t id) noexcept {
  const ibv_sge piece = {reinterpret_cast<std::uint64_t>(into), bytes, local_key};
  return post_remote(IBV_WR_RDMA_READ, piece, from, key, id);
}

bool QueuePair::write(const std::byte* from, std::uint32_t local_key, std::uint64_t to,
                      std::uint32_t key, std::uint32_t bytes, std::uint64_t id) noexcept {
  const ibv_sge piece = {reinterpret_cast<std::uint64_t>(from), bytes, local_key};
  return post_remote(IBV_WR_RDMA_WRITE, piece, to, key, id);
}

void QueuePair::give_up() noexcept {
  port_.device->check();
  ibv_qp_attr attributes = {};
  const int mask = to_error(&attributes);
  static_cast<void>(ibv_modify_qp(qp_, &attributes, mask));
}

bool QueuePair::post_receive(std::uint32_t index) noexcept {
  ibv_sge piece = {reinterpret_cast<std::uint64_t>(slot(index)),
                   static_cast<std::uint32_t>(slot_bytes()), memory_.in_lkey()};
  ibv_recv_wr receive = {};
  receive.wr_id = index;
  if (!writes()) {
    receive.sg_list = &piece;
    receive.num_sge = 1;
  }
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp_, &receive, &bad) == 0;
}

bool QueuePair::heed(const Channel& channel) noexcept {
  if (!port_.device->check() || !channel.descriptor.holds()) return false;
  ibv_cq* queue = nullptr;
  void* user = nullptr;
  // Each request for an event raises one at most. One that is left wakes the thread once more.
  if (ibv_get_cq_event(channel.verbs, &queue, &user) == 0) ibv_ack_cq_events(queue, 1);
  return true;
}

}  // namespace gpurun::transport::rdma
