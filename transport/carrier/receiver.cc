// Receiver: the socket's records first, then the bytes.
#include "transport/carrier/receiver.h"

#include <algorithm>
#include <utility>

namespace gpurun::transport::carrier {
namespace {

// One of this many polls asks the socket too, because a killed process cannot close the carrier. So
// does the first poll after a watch woke a thread.
constexpr unsigned kLooksAtCarrier = 256;

// The longest wait for bytes at once, because a program may close the descriptors below it.
constexpr std::chrono::nanoseconds kSlice = std::chrono::seconds(1);

}  // namespace

void Receiver::leave(Cause cause) {
  if (!by_carrier()) return;
  cause_.store(cause);
  by_carrier_.store(false, std::memory_order_relaxed);
  resent_ = false;
  left_.fetch_add(1, std::memory_order_relaxed);
  sleeper_.wake_up();
  duties_.leave = {entry_, line_.carrier().bytes_taken()};
  duties_.add(kSendLeave);
}

// False: the other end has sent what it may not send now.
bool Receiver::heed(const Record& record) {
  if (record.kind == Kind::kWake) {
    sleeper_.heard();
    return true;
  }
  if (!may_change_) return false;
  switch (record.kind) {
    case Kind::kWake:
      break;
    case Kind::kData:
      resent_ = true;
      return !by_carrier();
    case Kind::kAsk:
      leave(Cause::kOtherEnd);
      duties_.remove(kDoEnter);
      duties_.add(kSendAnswer);
      break;
    case Kind::kAnswer:
      if (leave_wanted_.exchange(false)) leave(Cause::kThisEnd);
      break;
    case Kind::kLeave:
      if (duties_.has(kResend)) return false;
      leave(Cause::kOtherEnd);
      duties_.remove(kDoEnter);
      duties_.their_leave = {record.entry, record.count};
      duties_.add(kResend);
      break;
    case Kind::kEnter:
      if (by_carrier() || duties_.has(kSendLeave) || !line_.carrier().skip_to(record.count))
        return false;
      by_carrier_.store(true, std::memory_order_relaxed);
      ++entry_;
      entered_.fetch_add(1, std::memory_order_relaxed);
      if (leave_wanted_.load()) {
        leave(Cause::kThisEnd);
      } else {
        duties_.add(kDoEnter);  // Both directions enter.
      }
      break;
  }
  return true;
}

Status Receiver::heed_records() {
  bool wrong = false;
  while (const std::optional<Record> record = input_.next_record(&wrong)) {
    if (!heed(*record)) return line_.broken();
  }
  if (wrong) return line_.broken();
  sender_.fulfil();
  return {};
}

void Receiver::leave_failed() {
  leave(Cause::kFailure);
  if (!leave_wanted_.exchange(true)) duties_.add(kSendAsk);
}

// A failure is the cause in each case: the end that notices it first asks the other one to leave.
std::string Receiver::why_left() const {
  const Cause cause = cause_.load();
  if (cause == Cause::kNone) return {};
  std::string failure = line_.carrier().why_failed();
  if (!failure.empty()) return failure;
  if (cause == Cause::kFailure) return std::string(line_.carrier().name()) + " has failed";
  return cause == Cause::kThisEnd ? "this end wanted it" : "the other end wanted it";
}

// Records behind data come after these are received.
Status Receiver::attend() {
  const Call call(*this);
  if (by_carrier() && !ended_ && line_.carrier().take({}).found == Found::kFailed) leave_failed();
  GPURUN_RETURN_IF_ERROR(heed_records());
  for (bool more = true; more && input_.data_left() == 0;) {
    const std::size_t room = input_.room().size();
    const Result<std::size_t> come = look_at_socket();
    if (!come.ok()) return come.status();
    more = *come == room;
  }
  sender_.fulfil();
  return {};
}

// The end is no failure of its own: bytes that came before it are still received.
Status Receiver::note_end(const Status& failed) {
  if (failed.code() != Code::kPeerGone) return failed;
  if (!ended_ && (by_carrier() || !resent_)) line_.carrier().await_rest();
  ended_ = true;
  return {};
}

// Reads what has come over the socket, without waiting.
Result<std::size_t> Receiver::look_at_socket() {
  const Result<std::size_t> come = line_.bytes().receive_some(input_.room(), false);
  if (!come.ok()) {
    GPURUN_RETURN_IF_ERROR(note_end(come.status()));
    return std::size_t{0};
  }
  input_.came(*come);
  GPURUN_RETURN_IF_ERROR(heed_records());
  return *come;
}

Result<std::size_t> Receiver::take_from_socket(MutableBytes into) {
  for (;;) {
    if (const std::size_t taken = input_.take_data(into); taken != 0) return taken;
    if (input_.data_left() != 0) {
      const std::size_t most = std::min(into.size(), input_.data_left());
      const Result<std::size_t> come = line_.bytes().receive_some(into.first(most), true);
      if (!come.ok()) {
        GPURUN_RETURN_IF_ERROR(note_end(come.status()));
        return std::size_t{0};
      }
      input_.data_came(*come);
      return *come;
    }
    // Records that came with earlier ones, then more of the socket.
    GPURUN_RETURN_IF_ERROR(heed_records());
    if (by_carrier()) return std::size_t{0};
    if (input_.data_left() != 0) continue;
    const Result<std::size_t> come = look_at_socket();
    if (!come.ok() || *come == 0 || by_carrier()) return come.ok() ? std::size_t{0} : come;
  }
}

Result<std::size_t> Receiver::take_some(MutableBytes into) {
  if (!by_carrier()) return take_from_socket(into);
  Moved taken = line_.carrier().take(into);
  // Nobody can send the rest again.
  if (taken.found == Found::kFailed && ended_) taken = line_.carrier().take(into);
  if (taken.found == Found::kBroken) return line_.broken();
  if (taken.found == Found::kFailed && !ended_) {
    leave_failed();
    sender_.fulfil();
  }
  return taken.bytes;
}

bool Receiver::finds_rest() {
  if (!ended_ || by_carrier() || resent_ || !line_.carrier().has_bytes()) return false;
  by_carrier_.store(true, std::memory_order_relaxed);
  return true;
}

// Sleeps at the socket, and at the carrier's own descriptor.
Status Receiver::read_socket(Deadline deadline) {
  sender_.fulfil();
  const int beside = by_carrier() ? line_.carrier().fd() : -1;
  if (beside < 0 && by_carrier() && times_left() == 0 && !duties_.has(kFlush)) {
    // One system call. A sender leaves no bytes before this end has left or heard of a change.
    const Result<std::size_t> come = line_.bytes().receive(input_.room(), 1, deadline);
    if (!come.ok()) return note_end(come.status());
    input_.came(*come);
    return heed_records();
  }
  if (deadline.passed()) return line_.late("receiving");
  line_.socket().heed_calls();
  const auto span = deadline.is_never() ? kSlice : std::min(kSlice, deadline.remaining());
  if (!line_.socket().await_bytes(beside, duties_.has(kFlush), span)) return {};
  return look_at_socket().status();
}

// Sleeps until bytes are there, the end, or the deadline.
Status Receiver::sleep(Deadline deadline) {
  const bool carried = by_carrier();
  if (carried && sleeper_.go_to_sleep()) {
    sleeper_.wake_up();
    return {};
  }
  if (CarriedWatch* const watch = line_.watch().get(); watch != nullptr) watch->receiver_sleeps();
  const Status slept = read_socket(deadline);
  if (carried && by_carrier()) sleeper_.wake_up();
  return slept;
}

Result<std::size_t> Receiver::receive(MutableBytes into, std::size_t bytes_min, Deadline deadline) {
  if (bytes_min == 0 || bytes_min > into.size()) {
    return Status(Code::kInvalidArgument, line_.description() + ": receive of no bytes");
  }
  const Call call(*this);
  std::size_t got = kept_.take(into);
  if (sleeper_.is_owed() && by_carrier()) GPURUN_RETURN_IF_ERROR(look_at_socket().status());
  bool late = false;
  while (got < bytes_min) {
    if (line_.is_gone()) return line_.gone("receiving");
    // Read before the carrier: bytes that were put before the end are then in it.
    const bool ended = has_ended();
    const Result<std::size_t> taken = take_some(into.subspan(got));
    if (!taken.ok()) return taken.status();
    got += *taken;
    if (*taken != 0) continue;
    if (ended && has_ended()) {
      if (finds_rest()) continue;
      return line_.gone("receiving");
    }
    // The deadline also ends a series of spurious wake-ups.
    const Status slept = late ? line_.late("receiving") : sleep(deadline);
    if (slept.code() == Code::kDeadline) kept_.put_back(into.first(got));
    GPURUN_RETURN_IF_ERROR(slept);
    late = deadline.passed();
  }
  return got;
}

Result<std::size_t> Receiver::receive_some(MutableBytes into, bool again) {
  const Call call(*this);
  if (line_.is_gone()) return line_.gone("receiving");
  if (!again && line_.socket().seems_taken_away()) return line_.socket().gone_by_the_program();
  const bool asks = ++looks_ % kLooksAtCarrier == 0 || sleeper_.is_asleep();
  if (by_carrier() && (asks || sleeper_.is_owed()))
    GPURUN_RETURN_IF_ERROR(look_at_socket().status());
  if (duties_.any()) sender_.fulfil();
  const bool ended = has_ended();
  const Result<std::size_t> taken = take_some(into);
  if (!taken.ok() || *taken != 0) return taken;
  if (ended && has_ended() && !finds_rest()) return line_.gone("receiving");
  return std::size_t{0};
}

// What a connection above the socket has read already makes no descriptor readable.
Receiver::Call::~Call() {
  const SocketInput& input = receiver_.input_;
  const bool has_more = receiver_.line_.bytes().holds_received() ||
                        (input.data_left() != 0 && !input.empty()) || receiver_.ended_;
  receiver_.has_more_.store(has_more, std::memory_order_relaxed);
}

bool Receiver::go_to_sleep(bool* wants_room) {
  if (duties_.any()) sender_.fulfil();
  *wants_room = duties_.has(kFlush);
  return has_something() || (by_carrier() && sleeper_.go_to_sleep());
}

bool Receiver::heed_wake(bool by_carrier_only) {
  const bool carried = by_carrier_only && by_carrier() && !ended_;
  if (carried && line_.carrier().take({}).found == Found::kWorks) {
    sleeper_.wake_up();
    return line_.carrier().has_bytes() || line_.carrier().is_closed_in();
  }
  if (!attend().ok()) return true;  // The receiving thread finds out why.
  if (has_something()) return true;
  if (!by_carrier()) return false;
  sleeper_.wake_up();
  return line_.carrier().has_bytes() || line_.carrier().is_closed_in();
}

Stirs Receiver::wake_up() noexcept {
  if (!by_carrier()) return Stirs::kSocket;
  sleeper_.wake_up();
  return line_.carrier().fd() >= 0 ? Stirs::kBeside : Stirs::kNothing;
}

Result<std::unique_ptr<Watch>> Receiver::watch() {
  auto socket = line_.socket().watch(line_.carrier().fd());
  if (!socket.ok()) return socket.status();
  return std::unique_ptr<Watch>(new CarriedWatch(*std::move(socket), *this, line_.watch()));
}

}  // namespace gpurun::transport::carrier
