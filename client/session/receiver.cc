// Receiver: the receiving half of the log channel. It passes on replies to their lanes, errors,
// output and life signs. The thread with the receiving role runs it.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>

#include "base/log.h"
#include "base/printable.h"
#include "client/log/lane_registry.h"
#include "client/session/lost_context.h"
#include "client/session/session_impl.h"
#include "driver_abi/error_codes.h"
#include "driver_abi/row.h"

namespace gpurun::client {
namespace {

// The warnings about failures of answered calls in a session. A loop of failing calls must not fill
// a terminal.
constexpr std::uint32_t kFailuresTold = 16;
// The worker's own messages that are shown, and the bytes that each is cut to.
constexpr std::uint32_t kWordsTold = 16;
constexpr std::size_t kWordBytesMax = 1024;
std::atomic<std::uint32_t> g_words_told{0};

// A program that learns of the failure from a later call, or never asks, cannot find out which call
// failed.
void tell_failure(const protocol::ReplyHeader& header, bool sticky, bool warn) {
  const auto level = warn ? log::Level::kWarning : log::Level::kInfo;
  if (!log::enabled(level)) return;
  const driver_abi::Row* row = driver_abi::find_row(header.opcode);
  const char* error = driver_abi::error_name(static_cast<CUresult>(header.result));
  log::write(level, "%s failed with %s (%d) after it had returned%s (call %llu)",
             row == nullptr ? "an unknown function" : row->symbol,
             error == nullptr ? "an unknown error" : error, header.result,
             sticky ? "; its context is lost" : "",
             static_cast<unsigned long long>(header.call_sequence));
}

// A worker's text, for a terminal.
std::string shown(ByteView text) {
  return printable({reinterpret_cast<const char*>(text.data()), text.size()}, ' ');
}

// Shows the worker's message about a call at once, because the program may make no further call.
void warn(const protocol::ReplyHeader& header, ByteView words) {
  if (g_words_told.fetch_add(1, std::memory_order_relaxed) >= kWordsTold) return;
  const std::string text = shown(words.first(std::min(words.size(), kWordBytesMax)));
  const driver_abi::Row* row = driver_abi::find_row(header.opcode);
  GPURUN_LOG(kWarning, "%s %s", row == nullptr ? "a call" : row->symbol, text.c_str());
}

}  // namespace

// The receiver thread: receives while no thread waits for a reply.
void Session::Impl::run_receiver() {
  transport::Watch* const watch = receiving.watch();
  const auto over = [this] { return shutdown.ending() || !shutdown.alive(); };
  Status status;
  while (status.ok() && !over()) {
    if (watch == nullptr) {
      status = receive_more(Deadline::in(life_signs.until_next_beat()));
      continue;
    }
    // It has its own clock, because the next beat belongs to the role, and the role's holder sends
    // life signs.
    const Status waited = watch->wait(Deadline::in(options.heartbeat));
    if (over()) return;
    if (!waited.ok() && waited.code() != Code::kDeadline) {
      status = waited;
    } else if (receiving.take()) {
      status = receive_what_came();
      if (!status.ok()) break;  // The role stays here, or another thread could find another reason.
      receiving.give_up();
    }
  }
  if (!status.ok() && !shutdown.ending()) shutdown.die(std::move(status));
}

// One check only: later bytes wake the watcher again.
Status Session::Impl::receive_what_came() {
  GPURUN_RETURN_IF_ERROR(receive_what_is_there(false));
  return receive_held();
}

Status Session::Impl::handle_frames() {
  for (;;) {
    protocol::Frame frame;
    const Result<bool> whole = reader.next(&frame);
    if (!whole.ok()) return whole.status();
    if (!*whole) return {};
    GPURUN_RETURN_IF_ERROR(handle_frame(frame));
  }
}

Status Session::Impl::receive_more(Deadline deadline) {
  life_signs.beat_when_due();
  // Any byte is a sign of life, so this waits for one byte and not for the rest of the frame.
  const Result<std::size_t> got = channels.log->receive(reader.space(), 1, deadline);
  if (!got.ok())
    return got.status().code() == Code::kDeadline ? life_signs.check_silence() : got.status();
  return heard(*got);
}

Status Session::Impl::receive_what_is_there(bool again) {
  life_signs.beat_when_due();
  const Result<std::size_t> got = channels.log->receive_some(reader.space(), again);
  if (!got.ok()) return got.status();
  return *got == 0 ? life_signs.check_silence() : heard(*got);
}

Status Session::Impl::heard(std::size_t bytes) {
  life_signs.heard();
  reader.filled(bytes);
  return handle_frames();
}

Status Session::Impl::receive_held() {
  while (channels.log->holds_received()) {
    const Result<std::size_t> got = channels.log->receive_some(reader.space(), true);
    if (!got.ok()) return got.status();
    if (*got == 0) return {};
    reader.filled(*got);
    GPURUN_RETURN_IF_ERROR(handle_frames());
  }
  return {};
}

Status Session::Impl::handle_frame(const protocol::Frame& frame) {
  if (!log.release_through(frame.header.acknowledged)) {
    return Status(Code::kProtocol, "the worker acknowledges call " +
                                       std::to_string(frame.header.acknowledged) +
                                       ", which was never sent");
  }
  room.note_released();
  switch (frame.header.kind) {
    case protocol::FrameKind::kReplies:
      return handle_replies(frame);
    case protocol::FrameKind::kAcknowledge:
      return {};
    case protocol::FrameKind::kHeartbeat:
      return check_owed(frame.header);
    case protocol::FrameKind::kGoodbye: {
      shutdown.note_goodbye();
      return Status(Code::kPeerGone, shown(frame.payload));
    }
    default:
      return Status(Code::kProtocol, "a frame of kind " +
                                         std::to_string(static_cast<int>(frame.header.kind)) +
                                         " on the log channel");
  }
}

// The worker owes a reply to each call that it has taken and that a thread waits for. Without this
// check the thread could wait forever, for a worker that lives.
Status Session::Impl::check_owed(const protocol::FrameHeader& heartbeat) {
  if (heartbeat.sequence == 0) return {};
  struct Waiting {
    std::uint64_t session, taken, calls;
  } waiting{serial, heartbeat.acknowledged, 0};
  const auto count = [](Lane& lane, void* user) {
    auto* const of = static_cast<Waiting*>(user);
    const std::lock_guard<std::mutex> lock(lane.mutex_);
    const bool waits = lane.awaited_ != 0 && !lane.answered_ && lane.awaited_in_ == of->session;
    if (waits && lane.awaited_ <= of->taken) ++of->calls;
  };
  for_each_lane(count, &waiting);
  if (waiting.calls < heartbeat.sequence) return {};
  return Status(Code::kProtocol,
                "the server has taken a call for whose reply a thread waits, and will not send it; "
                "the call or its reply was altered on the way, or the server is faulty");
}

Status Session::Impl::handle_replies(const protocol::Frame& frame) {
  ByteView rest = frame.payload;
  std::uint64_t taken = sender.replies_taken();
  while (!rest.empty()) {
    const Result<protocol::ReplyView> item = protocol::parse_reply(rest);
    if (!item.ok()) return item.status();
    rest = rest.subspan(item->header.bytes);
    if (item->header.sequence <= taken) continue;  // Sent again after a cut.
    if (item->header.sequence != taken + 1) {
      return Status(Code::kProtocol, "reply item " + std::to_string(item->header.sequence) +
                                         " follows " + std::to_string(taken));
    }
    GPURUN_RETURN_IF_ERROR(handle_item(*item));
    sender.note_replies_taken(++taken);
  }
  sender.acknowledge_many();
  return {};
}

Status Session::Impl::handle_item(const protocol::ReplyView& item) {
  const protocol::ReplyHeader& header = item.header;
  if (header.call_sequence > log.last_sequence()) {
    return Status(Code::kProtocol, "a reply about call " + std::to_string(header.call_sequence) +
                                       ", which was never made");
  }
  bulk.after_reads();
  const bool says_nothing = header.kind == protocol::ReplyKind::kReply &&
                            header.result == kResultNotReady;  // About what is complete.
  if (!says_nothing) events.something_comes();
  switch (header.kind) {
    case protocol::ReplyKind::kReply:
      return handle_reply(item);
    case protocol::ReplyKind::kCallError:
      return handle_call_error(header);
    case protocol::ReplyKind::kOutput:
      if (header.subject == 1) {
        warn(header, item.payload);
        return {};
      }
      output.keep(item.payload, (header.flags & protocol::kReplyFlagErrors) != 0);
      return {};
    case protocol::ReplyKind::kEventDone:
      note_progress(header);
      events.completed(header.subject, header.call_sequence, header.result, header.watermark);
      wake_event_waiters();
      return {};
    case protocol::ReplyKind::kBytesWanted:
      return bulk.wanted(header.subject, header.watermark);
    case protocol::ReplyKind::kCopyBytes:
      return take_copy(item);
    case protocol::ReplyKind::kHostTurn:
      GPURUN_RETURN_IF_ERROR(await_copies(header.watermark));
      return graphs.turn(header.subject, item.payload);
    case protocol::ReplyKind::kHostBytes:
      GPURUN_RETURN_IF_ERROR(await_copies(header.watermark));
      return graphs.bytes(header.subject, item.payload);
    case protocol::ReplyKind::kHostGone:
      return graphs.gone(header.subject);
    case protocol::ReplyKind::kWorkDone:
      if (const auto tell = session->work_done_.load(std::memory_order_acquire); tell != nullptr) {
        tell(header.subject);
      }
      return {};
  }
  return Status(Code::kProtocol, "unknown reply kind");
}

// Waits until bulk connections have brought completions 1 to `through`. Sends life signs meanwhile.
Status Session::Impl::await_copies(std::uint64_t through) {
  Clock::time_point moved = Clock::now();
  for (std::uint64_t at = bulk_completions.load(std::memory_order_acquire); at < through;) {
    life_signs.beat_when_due();
    const std::optional<std::uint64_t> now = bulk.await_completion(at, options.heartbeat);
    if (!now.has_value()) return Status(Code::kPeerGone, "the session has ended");
    if (*now != at) {
      moved = Clock::now();
    } else if (Clock::now() - moved >= options.silence_deadline) {
      return Status(Code::kDeadline, "completion " + std::to_string(at + 1) +
                                         " of a copy did not come for " +
                                         std::to_string(options.silence_deadline.count()) + " ms");
    }
    at = *now;
  }
  return {};
}

// Takes bytes of a copy that came on the log. Waits here if there is no room to keep them.
Status Session::Impl::take_copy(const protocol::ReplyView& item) {
  const protocol::ReplyHeader& header = item.header;
  for (;;) {
    const Result<bool> taken = bulk.take_whole(header.subject, header.watermark, item.payload);
    if (!taken.ok()) return taken.status();
    if (*taken) return {};
    GPURUN_RETURN_IF_ERROR(await_copies(header.watermark - 1));
  }
}

// Notes what the end of a record shows of its stream, and of the device.
void Session::Impl::note_progress(const protocol::ReplyHeader& header) {
  early_waits.told(header.call_sequence);
  const auto place = events.place_of(header.subject, header.call_sequence);
  if (place.has_value() && header.result == 0) progress.told(place->stream, place->record);
}

void Session::Impl::wake_event_waiters() {
  // Adds 0, because only a read-modify-write is ordered after what was just noted.
  if (event_waiters.fetch_add(0, std::memory_order_acq_rel) != 0) wake_lanes();
}

Status Session::Impl::handle_reply(const protocol::ReplyView& item) {
  const bool lost = (item.header.flags & protocol::kReplyFlagSticky) != 0;
  if (lost && item.header.context != 0 && item.header.result != 0) {
    // Calls that the client answers itself also return it from now on.
    DeferredErrors::Error error;
    error.context = item.header.context;
    error.result = item.header.result;
    if (!errors.add(error, true)) return Status(Code::kProtocol, "too many contexts are lost");
    report_lost_context(error.context, error.result);
  }
  Lane* lane = lane_of_id(item.header.lane);
  if (lane == nullptr) {
    return Status(Code::kProtocol, "a reply to lane " + std::to_string(item.header.lane) +
                                       ", which there never was");
  }
  const std::lock_guard<std::mutex> lock(lane->mutex_);
  if (lane->awaited_ != item.header.call_sequence || lane->answered_) {
    if (lane->abandoned_ > 0) {
      --lane->abandoned_;
      return {};
    }
    return Status(Code::kProtocol, "a reply to call " + std::to_string(item.header.call_sequence) +
                                       ", for which no thread waits; it was altered on the way, or "
                                       "the server is faulty");
  }
  lane->result_ = item.header.result;
  lane->watermark_ = item.header.watermark;
  lane->reply_.assign(item.payload.begin(), item.payload.end());
  lane->answered_ = true;
  lane->arrived_.notify_one();
  return {};
}

Status Session::Impl::handle_call_error(const protocol::ReplyHeader& header) {
  if (header.result == 0) return Status(Code::kProtocol, "a failure without an error");
  DeferredErrors::Error error;
  error.context = header.context;
  error.lane = header.lane;
  error.opcode = header.opcode;
  error.result = header.result;
  error.call_sequence = header.call_sequence;
  const bool sticky = (header.flags & protocol::kReplyFlagSticky) != 0;
  if (!errors.add(error, sticky)) return Status(Code::kProtocol, "too many contexts are lost");
  tell_failure(header, sticky, failures < kFailuresTold);
  if (sticky) report_lost_context(error.context, error.result);
  if (++failures == kFailuresTold) {
    GPURUN_LOG(kWarning, "further failures are logged at level info only (GPURUN_LOG)");
  }
  // A creation: later uses of the handle return this failure.
  if (header.subject != 0) session->handles().poison(header.subject, header.result);
  if (sticky) wake_event_waiters();
  return {};
}

}  // namespace gpurun::client
