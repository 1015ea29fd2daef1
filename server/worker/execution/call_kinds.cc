// CallKinds: the kinds that several properties of a record decide.
#include "server/worker/execution/call_kinds.h"

namespace gpurun::server {

using protocol::Order;
using protocol::RecordHeader;

bool CallKinds::begins_capture(const RecordHeader& header) {
  namespace opcode = driver_abi::opcode;
  switch (header.opcode) {
    case opcode::cuStreamBeginCapture:
    case opcode::cuStreamBeginCapture_ptsz:
    case opcode::cuStreamBeginCapture_v2:
    case opcode::cuStreamBeginCapture_v2_ptsz:
    case opcode::cuStreamBeginCaptureToCig:
    case opcode::cuStreamBeginCaptureToCig_ptsz:
    case opcode::cuStreamBeginCaptureToGraph:
    case opcode::cuStreamBeginCaptureToGraph_ptsz:
      return !is_hot(header.form);
    default:
      return false;
  }
}

bool CallKinds::is_query(const Call& call) const {
  const RecordHeader& header = call.header();
  const Handlers& of = handlers_;
  const bool asks =
      header.opcode != 0 && (header.opcode == of.stream_query || header.opcode == of.event_query ||
                             header.opcode == of.event_elapsed_time);
  const bool of_stream = header.order == Order::kStream;
  return asks && call.awaited() && !is_hot(header.form) && header.bulk == 0 &&
         of_stream == (header.opcode == of.stream_query) &&
         (header.flags & protocol::kFlagBarrier) == 0;
}

bool CallKinds::is_early_wait(const RecordHeader& header) const {
  const Handlers& of = handlers_;
  const bool waits = header.opcode != 0 && (header.opcode == of.stream_synchronize ||
                                            header.opcode == of.event_synchronize);
  return waits && header.order == Order::kStream && header.form == protocol::Form::kCall &&
         (header.flags & protocol::kFlagBarrier) != 0 && (header.flags & protocol::kFlagFence) == 0;
}

}  // namespace gpurun::server
