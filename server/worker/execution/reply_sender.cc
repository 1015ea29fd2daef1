// ReplySender: the items of the log to the client, in the order that their watermarks need.
#include "server/worker/execution/reply_sender.h"

#include <algorithm>
#include <utility>

#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

using protocol::RecordHeader;

namespace {

constexpr int kErrorCaptureUnsupported = 900;  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (cuda.h).

// CUresults after which cuda.h says that the process must be ended and the context is lost.
bool is_sticky(int result) {
  switch (result) {
    case 214:  // CUDA_ERROR_ECC_UNCORRECTABLE
    case 226:  // CUDA_ERROR_CONTAINED
    case 700:  // CUDA_ERROR_ILLEGAL_ADDRESS
    case 702:  // CUDA_ERROR_LAUNCH_TIMEOUT
    case 710:  // CUDA_ERROR_ASSERT
    case 714:  // CUDA_ERROR_HARDWARE_STACK_ERROR
    case 715:  // CUDA_ERROR_ILLEGAL_INSTRUCTION
    case 716:  // CUDA_ERROR_MISALIGNED_ADDRESS
    case 717:  // CUDA_ERROR_INVALID_ADDRESS_SPACE
    case 718:  // CUDA_ERROR_INVALID_PC
    case 719:  // CUDA_ERROR_LAUNCH_FAILED
    case 721:  // CUDA_ERROR_TENSOR_MEMORY_LEAK
      return true;
    default:
      return false;
  }
}

}  // namespace

void ReplySender::note_record(const Call& call) {
  const RecordHeader header = call.header();
  events_.recorded(header.subject, header.sequence);
  if ((header.flags & protocol::kFlagTell) == 0) return;
  const auto tell = [this, header](int result) {
    if (is_sticky(result)) report(header, result, 0);
    const auto told = [this, header, result] {
      tell_event_done(header, header.subject, header.sequence, result, true);
    };
    later(told, true);
  };
  if (is_capturing(options_.driver, call.driver_stream())) {
    tell(kErrorCaptureUnsupported);  // Nothing is recorded now.
  } else {
    const int result = completions_.after(call.driver_context(), call.driver_stream(), tell);
    if (result != 0) tell(result);
  }
  run_due();
}

// A stream that has failed counts as there too, and the copy then fails.
int ReplySender::want_bytes(const Call& call) {
  const RecordHeader header = call.header();
  const auto ask = [this, header](int) {
    later([this, header] {
      protocol::ReplyHeader item;
      item.kind = protocol::ReplyKind::kBytesWanted;
      item.opcode = header.opcode;
      item.lane = header.lane;
      item.call_sequence = header.sequence;
      item.context = header.context;
      item.subject = header.bulk;
      // By then the copies out of earlier work are in the client's memory.
      item.watermark = watermark(true);
      (void)outbox_.post(item, ByteView());
    });
  };
  const int result = completions_.after(call.driver_context(), call.driver_stream(), ask);
  run_due();
  return result;
}

void ReplySender::tell_event_done(const RecordHeader& about, std::uint64_t event,
                                  std::uint64_t record, int result, bool settled) {
  if (record == 0) return;
  if ((options_.features & feature_bit(protocol::Feature::kPushedCompletions)) == 0) return;
  protocol::ReplyHeader item;
  item.kind = protocol::ReplyKind::kEventDone;
  item.opcode = about.opcode;
  item.lane = about.lane;
  item.result = result;
  item.call_sequence = record;
  item.context = about.context;
  item.subject = event;
  item.watermark = watermark(settled);
  if (statistics_ != nullptr) statistics_->count_event_told();
  (void)outbox_.post_later(item, ByteView());
}

void ReplySender::later(std::function<void()> work, bool tells) {
  const std::lock_guard lock(mutex_);
  due_.push_back({std::move(work), tells});
}

void ReplySender::run_due() {
  for (;;) {
    std::vector<Due> mine;
    {
      const std::lock_guard lock(mutex_);
      mine.swap(due_);
    }
    if (mine.empty()) return;
    // The work behind these is complete, and so is all work that came before it in any stream.
    if (bulk_ != nullptr && bulk_->out().numbering_due()) completions_.settle();
    if (std::any_of(mine.begin(), mine.end(), [](const Due& each) { return each.tells; })) {
      print_first();
    }
    for (const Due& each : mine) each.work();
  }
}

// The watermark of all work that is complete on the device. `settled`: of what completions has
// reported.
std::uint64_t ReplySender::watermark(bool settled) {
  if (bulk_ == nullptr) return 0;
  if (!settled && bulk_->out().numbering_due()) {
    completions_.settle();
    run_due();
  }
  return bulk_->out().watermark();
}

void ReplySender::tell_work_done(const RecordHeader& about, std::uint64_t ticket) {
  protocol::ReplyHeader item;
  item.kind = protocol::ReplyKind::kWorkDone;
  item.opcode = about.opcode;
  item.lane = about.lane;
  item.call_sequence = about.sequence;
  item.context = about.context;
  item.subject = ticket;
  (void)outbox_.post(item, ByteView());
}

void ReplySender::report(const RecordHeader& header, int result, std::uint64_t created) {
  protocol::ReplyHeader item;
  item.kind = protocol::ReplyKind::kCallError;
  item.opcode = header.opcode;
  item.lane = header.lane;
  item.result = result;
  item.call_sequence = header.sequence;
  item.context = header.context;
  item.subject = created;
  if (is_sticky(result)) item.flags = protocol::kReplyFlagSticky;
  (void)outbox_.post(item, ByteView());
}

// Output of the driver goes before the notice that its kernel is complete.
void ReplySender::print_first() {
  if (before_reply_ != nullptr) before_reply_(before_reply_user_);
}

void ReplySender::send_gathered() {
  if (bulk_ != nullptr) bulk_->send_gathered();
}

// Bytes first, because notices may depend on them.
void ReplySender::send_all() {
  send_gathered();
  outbox_.send();
}

void ReplySender::answer(const Call& call, int result, bool settled) {
  call_bulk_.end(call, result);
  const RecordHeader& header = call.header();
  if (result != 0 && (header.flags & protocol::kFlagTell) != 0) {
    tell_event_done(header, header.subject, header.sequence, result, settled);
  }
  if (!call.awaited()) {
    if (result != 0) report(header, result, call.created());
    return;
  }
  protocol::ReplyHeader reply;
  reply.kind = protocol::ReplyKind::kReply;
  reply.opcode = header.opcode;
  reply.lane = header.lane;
  reply.result = result;
  reply.call_sequence = header.sequence;
  reply.context = header.context;
  if (is_sticky(result)) reply.flags = protocol::kReplyFlagSticky;
  reply.watermark = watermark(settled);
  print_first();
  send_gathered();  // The reply may depend on these bytes.
  if (statistics_ != nullptr) statistics_->replied(header, call.reply().size());
  // The outbox keeps a failure, and accept() returns it.
  (void)outbox_.post(reply, ByteView(call.reply()));
}

}  // namespace gpurun::server
