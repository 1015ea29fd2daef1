// StreamReports: the promise, and the event behind the work.
#include "server/worker/execution/stream_reports.h"

#include "driver_abi/opcodes.h"
#include "server/driver/error_numbers.h"
#include "server/worker/execution/call_kinds.h"
#include "server/worker/execution/thread_context.h"

namespace gpurun::server {

bool StreamReports::answer(Call& query) {
  const protocol::RecordHeader header = query.header();
  if ((header.flags & protocol::kFlagTell) == 0 ||
      header.opcode != driver_abi::opcode::cuStreamQuery || CallKinds::is_legacy(header) ||
      under_way_.load(std::memory_order_relaxed) >= kUnderWayMax) {
    return false;
  }
  // The event would wait for that work, and later waits of the stream for the event.
  if (parts_.order.legacy_may_delay(query)) return false;
  void* const context = query.driver_context();
  void* const stream = query.driver_stream();
  if (is_capturing(parts_.driver, stream) || !parts_.bound.room(context, stream)) return false;
  under_way_.fetch_add(1, std::memory_order_relaxed);
  // The answer goes first, because after() may poll for a moment.
  parts_.replies.answer(query, kErrorNotReady, false, protocol::kReplyFlagTells);
  const BriefSpin::Clock::time_point begin = BriefSpin::Clock::now();
  const auto ended = [this, header, begin](int result) {
    under_way_.fetch_sub(1, std::memory_order_relaxed);
    parts_.poll.helper_waited(begin);
    parts_.replies.tell_stream_ended(header, result);
  };
  const int result =
      parts_.completions.after(context, stream, ended, Completions::NotifyMode::kAwaited);
  if (result != 0) {
    ended(result);
  } else {
    parts_.bound.added(context, stream, [] { return false; });
  }
  parts_.replies.run_due();
  return true;
}

}  // namespace gpurun::server
