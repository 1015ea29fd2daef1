// Executes the requests of a QP's peer in order.
#include "tests/drivers/verbs/responder.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/drivers/verbs/completions.h"
#include "tests/drivers/verbs/counters.h"
#include "tests/drivers/verbs/queue_pair.h"
#include "tests/drivers/verbs/registration.h"

namespace gpurun::verbs_double {
namespace {

constexpr std::uint64_t kPlacementMax = 64U << 20;  // Bytes that wait for their placement.
constexpr std::size_t kUnsentMax = 1U << 20;        // Bytes, before another request is read.

// InfiniBand architecture, table "Encoding for RNR NAK Timer Field", in units of 10 us.
constexpr std::uint64_t kNotReadyTimer[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                              16,    24,   32,   48,    64,    96,    128,   192,
                                              256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                              4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};

bool hears(const Qp& qp) { return qp.state == IBV_QPS_RTR || qp.state == IBV_QPS_RTS; }

bool is_ours(const Qp& qp, const Frame& hello) {
  const ibv_ah_attr& path = qp.set.ah_attr;
  const Device& device = device_of(qp.context);
  if (hello.type != FrameType::kHello || hello.source_qp != qp.set.dest_qp_num ||
      hello.target_qp != qp.qp_num || hello.psn != qp.set.rq_psn ||
      (hello.solicited != 0) != (path.is_global != 0)) {
    return false;
  }
  if (path.is_global == 0) {
    return hello.target_lid == device.settings.lid + qp.set.port_num - 1 &&
           hello.source_lid == path.dlid;
  }
  const Gid* own = gid_of(device, path.grh.sgid_index);
  return std::memcmp(hello.target_gid, own->gid.raw, sizeof(hello.target_gid)) == 0 &&
         std::memcmp(hello.source_gid, path.grh.dgid.raw, sizeof(hello.source_gid)) == 0;
}

void drop_peer(Qp& qp) {
  qp.in.close();
  qp.welcomed = false;
  qp.closing = false;
  qp.waiting.reset();
}

// Takes a connection, or closes it if the QP may have no peer now.
void accept_peers(Qp& qp) {
  for (;;) {
    const int descriptor =
        set_aside(accept4(qp.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (descriptor < 0) return;
    if (!hears(qp) || qp.in.is_open() || qp.cut || qp.served) {
      close(descriptor);
    } else {
      qp.in.open(descriptor);
    }
  }
}

void answer(Qp& qp, FrameType type, const Frame& request, const Bytes& payload = {}) {
  Frame frame;
  frame.type = type;
  frame.sequence = request.sequence;
  qp.in.put(frame, payload);
}

void refuse(Qp& qp, const Frame& request, ibv_wc_status status, bool access_event) {
  Frame frame;
  frame.type = FrameType::kRefusal;
  frame.sequence = request.sequence;
  frame.status = static_cast<std::uint8_t>(status);
  qp.in.put(frame);
  qp.closing = true;
  move_to_error(qp);
  post_event(*qp.owner, access_event ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR, qp.qp_num);
}

void place(Qp& qp, const Placement& placement) {
  std::byte* memory = remote_memory(qp, placement.key, placement.address, placement.data.size(),
                                    IBV_ACCESS_REMOTE_WRITE);
  if (memory == nullptr) return;  // Deregistered since the request came.
  std::memcpy(memory, placement.data.data(), placement.data.size());
  count(&verbs_double_counts::placed_bytes, placement.data.size());
}

// Places what came before, except what a fault delays.
void place_due(Qp& qp) {
  std::deque<Placement> late;
  for (Placement& placement : qp.placements) {
    if (placement.late > 0) {
      late.push_back(std::move(placement));
      continue;
    }
    qp.placement_bytes -= placement.data.size();
    place(qp, placement);
  }
  qp.placements = std::move(late);
}

void keep_placement(Qp& qp, Message& message) {
  if (message.payload.empty()) return;
  const auto kind = static_cast<RequestKind>(message.frame.kind);
  qp.placement_bytes += message.payload.size();
  qp.placements.push_back({message.frame.key, message.frame.address, nic().faults.late(kind),
                           std::move(message.payload)});
  if (qp.placement_bytes > kPlacementMax) place_due(qp);
}

void report_receive(Qp& qp, const Frame& request, ibv_wc_status status) {
  const auto kind = static_cast<RequestKind>(request.kind);
  const bool write = kind == RequestKind::kWriteImm;
  const bool plain = write && device_of(qp.context).settings.plain_immediate;
  ibv_wc wc{};
  wc.status = status;
  wc.opcode = write && !plain ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc.byte_len = static_cast<std::uint32_t>(request.length);
  wc.src_qp = qp.set.dest_qp_num;
  if (kind != RequestKind::kSend && !plain) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = request.immediate;
  }
  finish_receive(qp, wc, request.solicited != 0);
}

void execute_send(Qp& qp, Message& message) {
  const std::vector<ibv_sge>& pieces = qp.receives.front().pieces;
  if (length_of(pieces) < message.payload.size()) {
    report_receive(qp, message.frame, IBV_WC_LOC_LEN_ERR);
    return refuse(qp, message.frame, IBV_WC_REM_INV_REQ_ERR, false);
  }
  if (!pieces_allowed(qp, pieces, IBV_ACCESS_LOCAL_WRITE)) {
    report_receive(qp, message.frame, IBV_WC_LOC_PROT_ERR);
    return refuse(qp, message.frame, IBV_WC_REM_OP_ERR, false);
  }
  place_due(qp);
  scatter(pieces, message.payload);
  report_receive(qp, message.frame, IBV_WC_SUCCESS);
  answer(qp, FrameType::kAck, message.frame);
}

void execute_write(Qp& qp, Message& message) {
  const Frame frame = message.frame;
  if (frame.length != 0 && remote_memory(qp, frame.key, frame.address, frame.length,
                                         IBV_ACCESS_REMOTE_WRITE) == nullptr) {
    return refuse(qp, frame, IBV_WC_REM_ACCESS_ERR, true);
  }
  keep_placement(qp, message);
  if (static_cast<RequestKind>(frame.kind) == RequestKind::kWriteImm) {
    place_due(qp);
    report_receive(qp, frame, IBV_WC_SUCCESS);
  }
  answer(qp, FrameType::kAck, frame);
}

void execute_read(Qp& qp, const Frame& frame) {
  Bytes data;
  if (frame.length != 0) {
    const std::byte* memory =
        remote_memory(qp, frame.key, frame.address, frame.length, IBV_ACCESS_REMOTE_READ);
    if (memory == nullptr) return refuse(qp, frame, IBV_WC_REM_ACCESS_ERR, true);
    place_due(qp);
    data.assign(memory, memory + frame.length);
    count(&verbs_double_counts::gathered_bytes, data.size());
  }
  answer(qp, FrameType::kData, frame, data);
}

bool needs_receive(RequestKind kind) {
  return kind == RequestKind::kSend || kind == RequestKind::kSendImm ||
         kind == RequestKind::kWriteImm;
}

// Executes the message that waits, or reports that it needs a receive. Returns false if it still
// waits.
bool execute_waiting(Qp& qp, bool is_new) {
  const auto kind = static_cast<RequestKind>(qp.waiting->frame.kind);
  if (needs_receive(kind) && qp.receives.empty()) {
    if (is_new) {
      count(&verbs_double_counts::not_ready);
      Frame frame;
      frame.type = FrameType::kNotReady;
      frame.sequence = qp.waiting->frame.sequence;
      frame.address = kNotReadyTimer[qp.set.min_rnr_timer] * 10;
      qp.in.put(frame);
    }
    return false;
  }
  Message message = std::move(*qp.waiting);
  qp.waiting.reset();
  for (Placement& placement : qp.placements) {
    if (placement.late > 0) --placement.late;
  }
  if (kind == RequestKind::kRead) {
    execute_read(qp, message.frame);
  } else if (kind == RequestKind::kWrite || kind == RequestKind::kWriteImm) {
    execute_write(qp, message);
  } else {
    execute_send(qp, message);
  }
  return true;
}

bool is_request(const Qp& qp, const Frame& frame) {
  const bool known = frame.kind < static_cast<std::uint8_t>(RequestKind::kRecv);
  const bool read = frame.kind == static_cast<std::uint8_t>(RequestKind::kRead);
  return frame.type == FrameType::kRequest && known &&
         frame.length <= device_of(qp.context).settings.message_max &&
         frame.payload == (read ? 0 : frame.length);
}

// Returns false if the peer has sent nothing more.
bool take_frame(Qp& qp) {
  Message message;
  const std::uint64_t most = device_of(qp.context).settings.message_max;
  const Stream::Received received = qp.in.next(message.frame, message.payload, most);
  if (received == Stream::Received::kNothing) return false;
  if (received == Stream::Received::kGone) {
    drop_peer(qp);
    return false;
  }
  if (!qp.welcomed) {
    if (!is_ours(qp, message.frame)) {
      drop_peer(qp);
      return false;
    }
    qp.welcomed = true;
    answer(qp, FrameType::kWelcome, message.frame);
    return true;
  }
  if (!is_request(qp, message.frame)) {
    drop_peer(qp);
    return false;
  }
  qp.served = true;
  qp.waiting = std::move(message);
  return execute_waiting(qp, true);
}

}  // namespace

void place_all(Qp& qp) {
  for (Placement& placement : qp.placements) placement.late = 0;
  place_due(qp);
}

void run_responder(Qp& qp) {
  accept_peers(qp);
  if (qp.closing) {
    if (!qp.in.flush() || qp.in.unsent() == 0) drop_peer(qp);
    return;
  }
  if (!hears(qp)) return;
  if (!qp.in.is_open()) return;
  bool more = !qp.waiting || execute_waiting(qp, false);
  while (more && hears(qp) && qp.in.is_open() && qp.in.unsent() < kUnsentMax) more = take_frame(qp);
  if (qp.in.is_open() && !qp.in.flush()) drop_peer(qp);
  if (qp.closing && qp.in.unsent() == 0) drop_peer(qp);
}

}  // namespace gpurun::verbs_double
