// Sender: one lock, which only a change contends for.
#include "transport/carrier/sender.h"

#include <algorithm>
#include <vector>

namespace gpurun::transport::carrier {
namespace {

// In one record over the socket. A long message can enter the carrier behind each of them.
constexpr std::size_t kSocketStepBytes = std::size_t{256} << 10;

}  // namespace

Sender::Turn::Turn(Sender& sender) : sender_(sender) {
  sender_.mutex_.lock();
  begin();
}

Sender::Turn::Turn(Sender& sender, std::adopt_lock_t) : sender_(sender) { begin(); }

void Sender::Turn::begin() noexcept {
  if (sender_.duties_.has(kFlush)) sender_.duties_.remove(kFlush);
}

Sender::Turn::~Turn() {
  const bool left = !sender_.output_.empty();
  if (left) sender_.duties_.add(kFlush);
  sender_.mutex_.unlock();
  if (left) sender_.line_.call_for_room();
}

// Puts at most a step. A sleeping receiver is woken later, once for all steps.
Result<std::size_t> Sender::put_some(PartCursor& cursor) {
  if (line_.is_gone()) return line_.gone("sending");
  if (line_.carrier().is_closed_out()) return line_.nobody_reads();
  const Moved put = line_.carrier().put(cursor);
  if (put.found == Found::kBroken) return line_.broken();
  if (put.found == Found::kFailed && !failed_) {
    failed_ = true;
    duties_.add(kSendAsk);
  }
  return put.bytes;
}

Status Sender::wake_receiver() {
  if (!line_.carrier().has_to_wake()) return {};
  if (!output_.empty()) {
    duties_.add(kSendWake);
    return {};
  }
  static constexpr auto kWake = static_cast<std::byte>(Kind::kWake);
  const ByteView wake(&kWake, 1);
  // A record that finds no room may be dropped: the many unread ones before it also wake the
  // receiver.
  const Result<std::size_t> woken = line_.bytes().send_some({&wake, 1});
  return woken.status().code() == Code::kPeerGone ? Status() : woken.status();
}

Status Sender::await_room(Deadline deadline) {
  GPURUN_RETURN_IF_ERROR(wake_receiver());
  if (deadline.passed()) return line_.late("sending");
  line_.carrier().sleep_as_sender(slice_of(deadline), duties_.word(), !failed_);
  const bool dead = (failed_ || line_.carrier().is_full()) && line_.socket().has_ended();
  return dead ? line_.nobody_reads() : Status();
}

// Waits for room in the socket.
Status Sender::await_socket(Deadline deadline) {
  if (line_.is_gone()) return line_.gone("sending");
  if (deadline.passed()) return line_.late("sending");
  line_.socket().await_room(false, slice_of(deadline));
  output_.flush(line_.bytes());
  return {};
}

// A short message is never cut: the socket has all of it, or output_ has the rest, or nothing was
// sent.
Status Sender::send_by_socket(PartCursor& cursor, std::size_t parts, Deadline deadline) {
  std::vector<ByteView> pieces(parts + 1);
  std::array<std::byte, kRecordBytesMax> head;
  std::size_t bytes = 0;
  const std::size_t count = cursor.look(std::span(pieces).subspan(1), kSocketStepBytes, &bytes);
  pieces[0] = ByteView(head).first(write_record({Kind::kData, 0, bytes}, &head));
  const auto record = std::span<const ByteView>(pieces).first(count + 1);
  const Result<std::size_t> sent = line_.bytes().send_some(record);
  if (!sent.ok()) {
    ended_ = sent.status().code() == Code::kPeerGone;
    return sent.status();
  }
  if (*sent == 0) return await_socket(deadline);
  PartCursor rest(record);
  rest.advance(*sent);
  cursor.advance(bytes);
  const std::size_t left = rest.bytes_left();
  std::size_t looked = 0;
  std::vector<ByteView> unsent(count + 1);
  unsent.resize(rest.look(unsent, left, &looked));
  if (left <= SocketOutput::kRestBytesMax) {
    output_.add_rest(unsent);
    while (!output_.empty() && !deadline.passed()) GPURUN_RETURN_IF_ERROR(await_socket(deadline));
    return {};
  }
  Status more = line_.bytes().send(unsent, deadline);
  ended_ = more.code() == Code::kPeerGone;
  return more;
}

Status Sender::send_all(PartCursor& cursor, std::size_t parts, Deadline deadline) {
  while (!cursor.done()) {
    if (ended_) return line_.nobody_reads();
    if (duties_.any() || !output_.empty()) do_duties();
    if (!by_carrier_) {
      GPURUN_RETURN_IF_ERROR(output_.empty() ? send_by_socket(cursor, parts, deadline)
                                             : await_socket(deadline));
      continue;
    }
    const Result<std::size_t> put = put_some(cursor);
    if (!put.ok()) return put.status();
    if (*put != 0) continue;
    // The other end may need the records that are still to be sent before it makes room.
    GPURUN_RETURN_IF_ERROR(output_.empty() ? await_room(deadline) : await_socket(deadline));
  }
  return wake_receiver();
}

Status Sender::send(std::span<const ByteView> parts, Deadline deadline) {
  PartCursor cursor(parts);
  return send_rest(cursor, parts.size(), deadline);
}

// The pause covers only the part that does not wait, because the other end may read nothing until
// this end receives.
Status Sender::send_paused(std::span<const ByteView> parts, Deadline deadline, WatchPause& pause) {
  PartCursor cursor(parts);
  pause.begin();
  const Result<std::size_t> sent = send_some_of(cursor);
  if (!sent.ok()) return sent.status();
  if (cursor.done()) return line_.is_gone() ? line_.gone("sending") : Status();
  pause.end();
  return send_rest(cursor, parts.size(), deadline);
}

Status Sender::send_rest(PartCursor& cursor, std::size_t parts, Deadline deadline) {
  Status sent;
  {
    const Turn turn(*this);
    sent = send_all(cursor, parts, deadline);
  }
  if (sent.code() == Code::kDeadline && cursor.started()) {
    line_.shut_down();
    return Status(Code::kPeerGone, line_.description() + ": the deadline cut a message in half");
  }
  fulfil();
  GPURUN_RETURN_IF_ERROR(sent);
  return line_.is_gone() ? line_.gone("sending") : Status();
}

Result<std::size_t> Sender::send_some(std::span<const ByteView> parts) {
  PartCursor cursor(parts);
  return send_some_of(cursor);
}

Result<std::size_t> Sender::send_some_of(PartCursor& cursor) {
  std::size_t sent = 0;
  {
    const Turn turn(*this);
    if (duties_.any() || !output_.empty()) do_duties();
    // A record of data must go whole, so nothing is sent over the socket here.
    while (by_carrier_ && !ended_ && !cursor.done()) {
      const Result<std::size_t> put = put_some(cursor);
      if (!put.ok()) return put.status();
      if (*put == 0) break;
      sent += *put;
    }
    GPURUN_RETURN_IF_ERROR(wake_receiver());
  }
  fulfil();
  return sent;
}

void Sender::do_duties() {
  for (;;) {
    output_.flush(line_.bytes());
    if (!output_.empty()) return;
    const unsigned duties = duties_.all();
    if (duties == 0) return;
    make_output(duties);
  }
}

// A duty that is added from now on is done again.
void Sender::make_output(unsigned duties) {
  duties_.remove(duties & ~(kSendLeave | kResend));
  const auto simple = [&](unsigned duty, Kind kind) {
    if ((duties & duty) != 0) output_.add({kind});
  };
  simple(kSendWake, Kind::kWake);
  simple(kSendAsk, Kind::kAsk);
  simple(kSendAnswer, Kind::kAnswer);
  if ((duties & kSendLeave) != 0) {
    output_.add({Kind::kLeave, duties_.leave.entry, duties_.leave.taken});
  }
  if ((duties & kResend) != 0) {
    resend();
    if ((duties & kDoEnter) != 0) duties_.add(kDoEnter);  // Behind these bytes.
  } else if ((duties & kDoEnter) != 0 && !by_carrier_ && !failed_) {
    output_.add({Kind::kEnter, 0, line_.carrier().bytes_put()});
    by_carrier_ = true;
    ++entry_;
  }
  duties_.remove(duties & (kSendLeave | kResend));
}

void Sender::resend() {
  std::array<ByteView, 2> untaken;
  if (!by_carrier_ || duties_.their_leave.entry != entry_ ||
      !line_.carrier().find_untaken(duties_.their_leave.taken, &untaken)) {
    static_cast<void>(line_.broken());
    return;
  }
  by_carrier_ = false;
  const std::size_t bytes = untaken[0].size() + untaken[1].size();
  if (bytes == 0) return;
  output_.add({Kind::kData, 0, bytes});
  output_.add_untaken(untaken);
}

// The thread that has the turn looks at the duties again behind it. The fence orders its look
// behind the end of its turn, and a failed attempt for the turn behind the new duty.
void Sender::fulfil() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  while (duties_.any()) {
    if (!mutex_.try_lock()) {
      line_.carrier().wake_sender();
      return;
    }
    const Turn turn(*this, std::adopt_lock);
    do_duties();
    if (!output_.empty()) return;
  }
}

void Sender::finish(Deadline deadline) {
  while (!line_.is_gone() && duties_.has(kFlush | kSendLeave | kResend)) {
    fulfil();
    const Turn turn(*this);
    if (!output_.empty() && !await_socket(deadline).ok()) return;
  }
  const Turn turn(*this);
  const bool reaches = by_carrier_ && !line_.is_gone() && !line_.socket().has_ended();
  if (reaches) line_.carrier().finish(deadline);
}

}  // namespace gpurun::transport::carrier
