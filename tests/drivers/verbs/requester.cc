// Sends the requests of a QP in order.
//
// A peer is lost while no connection to it exists. A connection that exists never times out, so
// that a busy machine fails no test.
#include "tests/drivers/verbs/requester.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/drivers/verbs/counters.h"
#include "tests/drivers/verbs/queue_pair.h"
#include "tests/drivers/verbs/registration.h"

namespace gpurun::verbs_double {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::size_t kUnsentMax = 1U << 18;  // Bytes, before another request is added.
constexpr milliseconds kFirstPause{2};
constexpr milliseconds kLongestPause{100};

nanoseconds scaled(nanoseconds time) {
  return nanoseconds(time.count() / 100 * static_cast<std::int64_t>(nic().timeout_percent));
}

// InfiniBand architecture, "local ACK timeout": 4.096 us x 2^timeout, and 0 is without end.
std::optional<nanoseconds> time_to_lose(const Qp& qp) {
  if (qp.set.timeout == 0) return std::nullopt;
  return scaled(nanoseconds((qp.set.retry_cnt + 1) * (4096LL << qp.set.timeout)));
}

void greet(Qp& qp) {
  const Device& device = device_of(qp.context);
  Frame hello;
  hello.type = FrameType::kHello;
  hello.source_qp = qp.qp_num;
  hello.target_qp = qp.set.dest_qp_num;
  hello.psn = qp.set.sq_psn;
  hello.source_lid = static_cast<std::uint16_t>(device.settings.lid + qp.set.port_num - 1);
  hello.target_lid = qp.set.ah_attr.dlid;
  if (qp.set.ah_attr.is_global != 0) {
    hello.solicited = 1;
    const Gid* own = gid_of(device, qp.set.ah_attr.grh.sgid_index);
    std::memcpy(hello.source_gid, own->gid.raw, sizeof(hello.source_gid));
    std::memcpy(hello.target_gid, qp.set.ah_attr.grh.dgid.raw, sizeof(hello.target_gid));
  }
  qp.out.put(hello);
  qp.link = Qp::Link::kGreeting;
}

void connect(Qp& qp, Clock::time_point now) {
  if (qp.link != Qp::Link::kApart || qp.cut) return;
  const int descriptor = connect_qp(nic().fabric, qp.set.dest_qp_num);
  if (descriptor >= 0) {
    qp.out.open(descriptor);
    greet(qp);
    return;
  }
  qp.pause = std::clamp(qp.pause * 2, kFirstPause, kLongestPause);
  qp.next_attempt = now + qp.pause;
}

void lose(Qp& qp, Clock::time_point now) {
  qp.out.close();
  qp.not_ready_at.reset();
  if (qp.link == Qp::Link::kUp) {
    qp.link = Qp::Link::kLost;
    return;
  }
  qp.link = Qp::Link::kApart;
  qp.pause = std::clamp(qp.pause * 2, kFirstPause, kLongestPause);
  qp.next_attempt = now + qp.pause;
}

void fail(Qp& qp, ibv_wc_status status) {
  finish_send(qp, status);
  move_to_error(qp);
}

bool has_payload(RequestKind kind) { return kind != RequestKind::kRead; }

// The status with which the request fails here, before it leaves.
std::optional<ibv_wc_status> own_failure(const Qp& qp, const SendRequest& request) {
  if (request.planned) return request.planned;
  if (request.kind == RequestKind::kRead && qp.set.max_rd_atomic == 0) return IBV_WC_LOC_QP_OP_ERR;
  const bool read = request.kind == RequestKind::kRead;
  const unsigned access = read ? static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE) : 0;
  if (!request.is_inline && !pieces_allowed(qp, request.pieces, access)) return IBV_WC_LOC_PROT_ERR;
  return std::nullopt;
}

bool must_wait(const Qp& qp, const SendRequest& request, Clock::time_point now) {
  if (request.leaves > now || qp.out.unsent() > kUnsentMax) return true;
  if (request.fence && qp.reads_started > 0) return true;
  return request.kind == RequestKind::kRead && qp.set.max_rd_atomic != 0 &&
         qp.reads_started >= qp.set.max_rd_atomic;
}

void start(Qp& qp, SendRequest& request) {
  Frame frame;
  frame.type = FrameType::kRequest;
  frame.kind = static_cast<std::uint8_t>(request.kind);
  frame.solicited = request.solicited ? 1 : 0;
  frame.sequence = request.sequence = qp.next_sequence++;
  frame.address = request.address;
  frame.length = request.length;
  frame.key = request.key;
  frame.immediate = request.immediate;
  if (!has_payload(request.kind)) {
    qp.out.put(frame);
    ++qp.reads_started;
  } else {
    qp.out.put(frame, request.is_inline ? request.inline_data : gather(request.pieces));
  }
  ++qp.started;
}

void start_requests(Qp& qp, Clock::time_point now) {
  while (qp.state == IBV_QPS_RTS && qp.link == Qp::Link::kUp && qp.started < qp.requests.size()) {
    SendRequest& request = qp.requests[qp.started];
    if (must_wait(qp, request, now)) return;
    if (const auto failure = own_failure(qp, request)) {
      if (qp.started == 0) fail(qp, *failure);  // Earlier requests complete first.
      return;
    }
    start(qp, request);
    if (!qp.out.flush()) return lose(qp, now);
  }
}

// Returns false if the peer's answer does not fit.
bool take_data(Qp& qp, const Bytes& payload) {
  const SendRequest& request = qp.requests.front();
  if (request.kind != RequestKind::kRead || payload.size() != request.length) return false;
  if (!pieces_allowed(qp, request.pieces, IBV_ACCESS_LOCAL_WRITE)) {
    fail(qp, IBV_WC_LOC_PROT_ERR);
    return true;
  }
  qp.read_placements.push_back({request.pieces, nic().faults.late(RequestKind::kRead), payload});
  count(&verbs_double_counts::read_bytes, payload.size());
  finish_send(qp, IBV_WC_SUCCESS);
  return true;
}

bool take_answer(Qp& qp, const Frame& frame, const Bytes& payload, Clock::time_point now) {
  if (qp.link == Qp::Link::kGreeting) {
    if (frame.type != FrameType::kWelcome) return false;
    qp.link = Qp::Link::kUp;
    qp.lost_at.reset();
    return true;
  }
  if (qp.started == 0 || frame.sequence != qp.requests.front().sequence) return false;
  if (frame.type == FrameType::kNotReady) {
    if (qp.set.rnr_retry == 7) return true;  // Without end (ibv_modify_qp(3)).
    const microseconds pause(
        static_cast<std::int64_t>(std::min<std::uint64_t>(frame.address, 1'000'000)));
    qp.not_ready_at = now + scaled(pause * qp.set.rnr_retry);
    return true;
  }
  qp.not_ready_at.reset();
  if (frame.type == FrameType::kData) return take_data(qp, payload);
  if (frame.type == FrameType::kRefusal) {
    fail(qp, static_cast<ibv_wc_status>(frame.status));
    return true;
  }
  if (frame.type != FrameType::kAck || qp.requests.front().kind == RequestKind::kRead) return false;
  finish_send(qp, IBV_WC_SUCCESS);
  return true;
}

void take_answers(Qp& qp, Clock::time_point now) {
  const std::uint64_t most = device_of(qp.context).settings.message_max;
  while (qp.state == IBV_QPS_RTS && qp.out.is_open()) {
    Frame frame;
    Bytes payload;
    const Stream::Received received = qp.out.next(frame, payload, most);
    if (received == Stream::Received::kNothing) return;
    if (received == Stream::Received::kGone || !take_answer(qp, frame, payload, now)) {
      return lose(qp, now);
    }
  }
}

void time_out(Qp& qp, Clock::time_point now) {
  if (qp.not_ready_at && now >= *qp.not_ready_at) return fail(qp, IBV_WC_RNR_RETRY_EXC_ERR);
  if (qp.requests.empty() || qp.link == Qp::Link::kUp) {
    qp.lost_at.reset();
    qp.last_attempt = false;
    return;
  }
  if (!qp.lost_at) {
    if (const auto time = time_to_lose(qp)) qp.lost_at = now + *time;
  }
  if (!qp.lost_at || now < *qp.lost_at || qp.link == Qp::Link::kGreeting) return;
  // The peer may have become ready since the last attempt.
  if (!std::exchange(qp.last_attempt, true)) connect(qp, now);
  if (qp.link != Qp::Link::kGreeting) fail(qp, IBV_WC_RETRY_EXC_ERR);
}

}  // namespace

void run_requester(Qp& qp, Clock::time_point now) {
  if (qp.state != IBV_QPS_RTS || qp.stopped) return;
  if (now >= qp.next_attempt) connect(qp, now);
  if (qp.out.is_open() && !qp.out.flush()) lose(qp, now);
  take_answers(qp, now);
  start_requests(qp, now);
  if (qp.state == IBV_QPS_RTS) time_out(qp, now);
  if (qp.link == Qp::Link::kGreeting && !qp.out.flush()) lose(qp, now);
}

Clock::time_point requester_deadline(const Qp& qp) {
  auto earliest = Clock::time_point::max();
  if (qp.state != IBV_QPS_RTS || qp.stopped) return earliest;
  if (qp.link == Qp::Link::kApart && !qp.cut) earliest = std::min(earliest, qp.next_attempt);
  const bool connected = qp.link == Qp::Link::kUp || qp.link == Qp::Link::kGreeting;
  if (qp.lost_at && !connected) earliest = std::min(earliest, *qp.lost_at);
  if (qp.not_ready_at) earliest = std::min(earliest, *qp.not_ready_at);
  if (qp.started < qp.requests.size() && qp.link == Qp::Link::kUp &&
      qp.requests[qp.started].leaves > Clock::now()) {
    earliest = std::min(earliest, qp.requests[qp.started].leaves);
  }
  return earliest;
}

}  // namespace gpurun::verbs_double
