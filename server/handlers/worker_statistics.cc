// Worker statistics: the handler of the one opcode that belongs to no CUDA function.
#include "server/handlers/worker_statistics.h"

#include <cstring>

#include "server/driver/snapshot.h"
#include "server/handlers/state/handler_state.h"
#include "server/worker/execution/executor.h"
#include "server/worker/execution/refusals.h"
#include "server/worker/stats/statistics_counter.h"

namespace gpurun::server {
namespace {

CallOutcome begin_recording(Call& call, StatisticsCounter& statistics) {
  StatisticsCounter::Device device;
  const driver_abi::EmulatedView* const view = emulated_view(HandlerState::of(call).driver());
  if (view != nullptr) device = {view->number_launches, view->watch_kernels};
  statistics.begin_recording(device);
  return CallOutcome::done(0);
}

CallOutcome give_piece(Call& call, Recorder* recorder, std::uint64_t offset) {
  if (recorder == nullptr) return CallOutcome::done(kErrorInvalidValue);
  std::uint64_t size = 0;
  const Bytes piece = recorder->piece(offset, protocol::kRecordingPieceBytes, &size);
  const MutableBytes reply = call.reserve_reply(sizeof size + piece.size());
  static_assert(sizeof size + protocol::kRecordingPieceBytes <= protocol::kReplyPayloadBytesMax);
  std::memcpy(reply.data(), &size, sizeof size);
  if (!piece.empty()) std::memcpy(reply.data() + sizeof size, piece.data(), piece.size());
  return CallOutcome::done(0);
}

CallOutcome answer_statistics_query(Call& call) {
  protocol::StatisticsQueryPayload asked;
  StatisticsCounter* const statistics = call.executor().options().statistics;
  if (statistics == nullptr) return CallOutcome::done(kErrorNotSupported);
  if (call.header().form != protocol::Form::kRaw || !call.awaited() ||
      call.payload().size() != sizeof asked) {
    return CallOutcome::done(kErrorInvalidValue);
  }
  std::memcpy(&asked, call.payload().data(), sizeof asked);
  switch (asked.what) {
    case protocol::StatisticsQuery::kStatistics:
      call.set_reply(protocol::encode(statistics->statistics()));
      return CallOutcome::done(0);
    case protocol::StatisticsQuery::kClock: {
      const std::uint64_t now = StatisticsCounter::now();
      call.set_reply(bytes_of(now));
      return CallOutcome::done(0);
    }
    case protocol::StatisticsQuery::kRefusals:
      call.set_reply(protocol::encode(refusals_of(call.executor())));
      return CallOutcome::done(0);
    case protocol::StatisticsQuery::kRecord:
      return begin_recording(call, *statistics);
    case protocol::StatisticsQuery::kRecording:
      statistics->set_told();
      return give_piece(call, statistics->recorder(), asked.value);
  }
  return CallOutcome::done(kErrorInvalidValue);
}

}  // namespace

void add_statistics_handler(Handlers& handlers) {
  static_assert(protocol::kStatisticsOpcode < Handlers::kOpcodes);
  handlers.by_opcode[protocol::kStatisticsOpcode] = &answer_statistics_query;
}

}  // namespace gpurun::server
