// Executor replies: the reply or failure of a call, its bulk, and the notice of its event.
#include <algorithm>
#include <cstring>

#include "server/worker/execution/executor_state.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {
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

void ExecutorState::expect_bulk(const Call& call) {
  const RecordHeader& header = call.header_;
  if (bulk == nullptr || header.bulk == 0) return;
  // A refusal comes again when the call runs.
  if (header.form == Form::kCopyIn) {
    protocol::CopyPayload copy;
    std::memcpy(&copy, call.payload_.data(), sizeof copy);
    (void)bulk->in().expect_copy(header.bulk, header.sequence, copy.bytes);
  } else if (!CallKinds::is_hot(header.form)) {
    (void)bulk->in().expect_whole(header.bulk, header.sequence);
  }
}

// Takes the payload beside the log. Returns 0 or the CUresult. `here` is false if it has not come
// yet.
int ExecutorState::take_bulk(Call& call, bool* here) {
  const RecordHeader& header = call.header_;
  *here = true;
  if (header.bulk == 0 || call.bulk_ != nullptr) return 0;
  if ((header.flags & protocol::kFlagBulkOnDemand) != 0) return 0;  // Call::fetch_bulk().
  if (bulk == nullptr) return kErrorNotSupported;
  int result = bulk->in().expect_whole(header.bulk, header.sequence);
  if (result == 0) result = bulk->in().take_whole(header.bulk, &call.bulk_);
  *here = call.bulk_ != nullptr;
  return result;
}

// Ends what the call did not consume or deliver.
void ExecutorState::end_bulk(const Call& call, int result) {
  const RecordHeader& header = call.header_;
  if (bulk == nullptr || header.bulk == 0) return;
  if (header.form != Form::kCopyOut) return bulk->in().end_call(header.bulk, header.sequence);
  protocol::CopyPayload copy;
  std::memcpy(&copy, call.payload_.data(), sizeof copy);
  bulk->out().end_call(header.bulk, header.sequence, copy.bytes, result);
}

// The client is notified of the record's end if it announced that it would ask.
void ExecutorState::note_record(const Call& call) {
  const RecordHeader header = call.header_;
  events.recorded(header.subject, header.sequence);
  if ((header.flags & protocol::kFlagTell) == 0) return;
  const auto tell = [this, header](int result) {
    if (is_sticky(result)) report(header, result, 0);
    const auto told = [this, header, result] {
      tell_event_done(header, header.subject, header.sequence, result, true);
    };
    later(told, true);
  };
  if (is_capturing(options.driver, call.driver_stream_)) {
    tell(kErrorCaptureUnsupported);  // Nothing is recorded now.
  } else {
    const int result = completions.after(call.driver_context_, call.driver_stream_, tell);
    if (result != 0) tell(result);
  }
  run_due();
}

// Requests the bytes of a copy in when its stream has reached the copy. A stream that has failed
// counts as there too, and the copy then fails. Returns 0, or the CUresult, and then requests
// nothing.
int ExecutorState::want_bytes(const Call& call) {
  const RecordHeader header = call.header_;
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
      (void)outbox.post(item, ByteView());
    });
  };
  const int result = completions.after(call.driver_context_, call.driver_stream_, ask);
  run_due();
  return result;
}

// Sent with the next item, or when the executor or a helper finishes its step.
void ExecutorState::tell_event_done(const RecordHeader& about, std::uint64_t event,
                                    std::uint64_t record, int result, bool settled) {
  if (record == 0) return;
  if ((options.features & feature_bit(protocol::Feature::kPushedCompletions)) == 0) return;
  protocol::ReplyHeader item;
  item.kind = protocol::ReplyKind::kEventDone;
  item.opcode = about.opcode;
  item.lane = about.lane;
  item.result = result;
  item.call_sequence = record;
  item.context = about.context;
  item.subject = event;
  item.watermark = watermark(settled);
  if (observer != nullptr) observer->count_event_told();
  (void)outbox.post_later(item, ByteView());
}

void ExecutorState::later(std::function<void()> work, bool tells) {
  const std::lock_guard lock(due_mutex);
  due.push_back({std::move(work), tells});
}

void ExecutorState::run_due() {
  for (;;) {
    std::vector<Due> mine;
    {
      const std::lock_guard lock(due_mutex);
      mine.swap(due);
    }
    if (mine.empty()) return;
    // The work behind these is complete, and so is all work that came before it in any stream.
    if (bulk != nullptr && bulk->out().numbering_due()) completions.settle();
    if (std::any_of(mine.begin(), mine.end(), [](const Due& each) { return each.tells; })) {
      print_first();
    }
    for (const Due& each : mine) each.work();
  }
}

// The watermark of all work that is complete on the device. `settled`: of what completions has
// reported.
std::uint64_t ExecutorState::watermark(bool settled) {
  if (bulk == nullptr) return 0;
  if (!settled && bulk->out().numbering_due()) {
    completions.settle();
    run_due();
  }
  return bulk->out().watermark();
}

void ExecutorState::report(const RecordHeader& header, int result, std::uint64_t created) {
  protocol::ReplyHeader item;
  item.kind = protocol::ReplyKind::kCallError;
  item.opcode = header.opcode;
  item.lane = header.lane;
  item.result = result;
  item.call_sequence = header.sequence;
  item.context = header.context;
  item.subject = created;
  if (is_sticky(result)) item.flags = protocol::kReplyFlagSticky;
  (void)outbox.post(item, ByteView());
}

// Output of the driver goes before the notice that its kernel is complete.
void ExecutorState::print_first() {
  if (before_reply != nullptr) before_reply(before_reply_user);
}

// Sends bytes of copies that this thread has gathered, before other items.
void ExecutorState::send_gathered() {
  if (bulk != nullptr) bulk->send_gathered();
}

// Bytes first, because notices may depend on them.
void ExecutorState::send_all() {
  send_gathered();
  outbox.send();
}

void ExecutorState::answer(const Call& call, int result, bool settled) {
  end_bulk(call, result);
  const RecordHeader& header = call.header_;
  if (result != 0 && (header.flags & protocol::kFlagTell) != 0) {
    tell_event_done(header, header.subject, header.sequence, result, settled);
  }
  if (!call.awaited()) {
    if (result != 0) report(header, result, call.created_);
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
  if (observer != nullptr) observer->replied(header, call.reply_.size());
  // The outbox keeps a failure, and accept() returns it.
  (void)outbox.post(reply, ByteView(call.reply_));
}

}  // namespace gpurun::server
