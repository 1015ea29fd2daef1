// ReplyHandler: one function for each kind of frame and item.
#include "client/session/reply_handler.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/printable.h"
#include "client/session/lost_context.h"
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

Status ReplyHandler::handle(const protocol::Frame& frame) {
  if (!uses_.log.release_through(frame.header.acknowledged)) {
    return Status(Code::kProtocol, "the worker acknowledges call " +
                                       std::to_string(frame.header.acknowledged) +
                                       ", which was never sent");
  }
  uses_.room.note_released();
  switch (frame.header.kind) {
    case protocol::FrameKind::kReplies:
      return handle_replies(frame);
    case protocol::FrameKind::kAcknowledge:
      return {};
    case protocol::FrameKind::kHeartbeat:
      return check_owed(frame.header);
    case protocol::FrameKind::kGoodbye: {
      uses_.shutdown.note_goodbye();
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
Status ReplyHandler::check_owed(const protocol::FrameHeader& heartbeat) {
  if (heartbeat.sequence == 0) return {};
  if (uses_.replies.count_awaited(heartbeat.acknowledged) < heartbeat.sequence) return {};
  return Status(Code::kProtocol,
                "the server has taken a call and will not send the reply that a thread waits for; "
                "the call or its reply was altered on the way, or the server is faulty");
}

Status ReplyHandler::handle_replies(const protocol::Frame& frame) {
  ByteView rest = frame.payload;
  std::uint64_t taken = uses_.sender.replies_taken();
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
    uses_.sender.note_replies_taken(++taken);
  }
  uses_.sender.acknowledge_many();
  return {};
}

Status ReplyHandler::handle_item(const protocol::ReplyView& item) {
  const protocol::ReplyHeader& header = item.header;
  if (header.call_sequence > uses_.log.last_sequence()) {
    return Status(Code::kProtocol, "a reply about call " + std::to_string(header.call_sequence) +
                                       ", which was never made");
  }
  uses_.bulk.after_reads();
  const bool says_nothing = header.kind == protocol::ReplyKind::kReply &&
                            header.result == kResultNotReady;  // About what is complete.
  if (!says_nothing) uses_.known.events.something_comes();
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
      uses_.known.output.keep(item.payload, (header.flags & protocol::kReplyFlagErrors) != 0);
      return {};
    case protocol::ReplyKind::kEventDone:
      note_progress(header);
      uses_.known.events.completed(header.subject, header.call_sequence, header.result,
                                   header.watermark);
      uses_.replies.wake_event_waiters();
      return {};
    case protocol::ReplyKind::kBytesWanted:
      return uses_.bulk.wanted(header.subject, header.watermark);
    case protocol::ReplyKind::kCopyBytes:
      return take_copy(item);
    case protocol::ReplyKind::kHostTurn:
      GPURUN_RETURN_IF_ERROR(await_copies(header.watermark));
      return uses_.graphs.turn(header.subject, item.payload);
    case protocol::ReplyKind::kHostBytes:
      GPURUN_RETURN_IF_ERROR(await_copies(header.watermark));
      return uses_.graphs.bytes(header.subject, item.payload);
    case protocol::ReplyKind::kHostGone:
      return uses_.graphs.gone(header.subject);
    case protocol::ReplyKind::kWorkDone:
      if (const auto tell = work_done_.load(std::memory_order_acquire); tell != nullptr) {
        tell(header.subject);
      }
      return {};
  }
  return Status(Code::kProtocol, "unknown reply kind");
}

// Waits until bulk connections have brought completions 1 to `through`. Sends life signs meanwhile.
Status ReplyHandler::await_copies(std::uint64_t through) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point moved = Clock::now();
  for (std::uint64_t at = uses_.replies.completions(); at < through;) {
    uses_.life_signs.beat_when_due();
    const std::optional<std::uint64_t> now =
        uses_.bulk.await_completion(at, uses_.options.heartbeat);
    if (!now.has_value()) return Status(Code::kPeerGone, "the session has ended");
    if (*now != at) {
      moved = Clock::now();
    } else if (Clock::now() - moved >= uses_.options.silence_deadline) {
      return Status(Code::kDeadline,
                    "completion " + std::to_string(at + 1) + " of a copy did not come for " +
                        std::to_string(uses_.options.silence_deadline.count()) + " ms");
    }
    at = *now;
  }
  return {};
}

// Takes bytes of a copy that came on the log. Waits here if there is no room to keep them.
Status ReplyHandler::take_copy(const protocol::ReplyView& item) {
  const protocol::ReplyHeader& header = item.header;
  for (;;) {
    const Result<bool> taken =
        uses_.bulk.take_whole(header.subject, header.watermark, item.payload);
    if (!taken.ok()) return taken.status();
    if (*taken) return {};
    GPURUN_RETURN_IF_ERROR(await_copies(header.watermark - 1));
  }
}

// Notes what the end of a record shows of its stream, and of the device.
void ReplyHandler::note_progress(const protocol::ReplyHeader& header) {
  uses_.known.early_waits.told(header.call_sequence);
  const auto place = uses_.known.events.place_of(header.subject, header.call_sequence);
  if (place.has_value() && header.result == 0) {
    uses_.known.progress.told(place->context, place->stream, place->record);
  }
}

Status ReplyHandler::handle_reply(const protocol::ReplyView& item) {
  const bool lost = (item.header.flags & protocol::kReplyFlagSticky) != 0;
  if (lost && item.header.context != 0 && item.header.result != 0) {
    // Calls that the client answers itself also return it from now on.
    DeferredErrors::Error error;
    error.context = item.header.context;
    error.result = item.header.result;
    if (!uses_.known.errors.add(error, true)) {
      return Status(Code::kProtocol, "too many contexts are lost");
    }
    report_lost_context(error.context, error.result);
  }
  return uses_.replies.answer(item);
}

Status ReplyHandler::handle_call_error(const protocol::ReplyHeader& header) {
  if (header.result == 0) return Status(Code::kProtocol, "a failure without an error");
  DeferredErrors::Error error;
  error.context = header.context;
  error.lane = header.lane;
  error.opcode = header.opcode;
  error.result = header.result;
  error.call_sequence = header.call_sequence;
  const bool sticky = (header.flags & protocol::kReplyFlagSticky) != 0;
  if (!uses_.known.errors.add(error, sticky)) {
    return Status(Code::kProtocol, "too many contexts are lost");
  }
  tell_failure(header, sticky, failures_ < kFailuresTold);
  if (sticky) report_lost_context(error.context, error.result);
  if (++failures_ == kFailuresTold) {
    GPURUN_LOG(kWarning, "further failures are logged at level info only (GPURUN_LOG)");
  }
  // A creation: later uses of the handle return this failure.
  if (header.subject != 0) uses_.handles.poison(header.subject, header.result);
  if (sticky) uses_.replies.wake_event_waiters();
  return {};
}

}  // namespace gpurun::client
