// Decoder: checks and counts the records of each frame and passes them on in groups.
#include "server/worker/execution/decoder.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gpurun::server {
namespace {

using protocol::Frame;
using protocol::FrameKind;
using protocol::RecordView;

constexpr std::size_t kCallsAtOnce = 64;

Status gap(std::uint64_t wanted, std::uint64_t got) {
  return Status(Code::kProtocol, "record " + std::to_string(got) + " came where " +
                                     std::to_string(wanted) + " was due");
}

}  // namespace

Decoder::Decoder(transport::Connection& log, Outbox& outbox, CallSink& sink,
                 std::chrono::milliseconds silence_deadline, std::chrono::microseconds spin)
    : log_(log), outbox_(outbox), sink_(sink), silence_deadline_(silence_deadline), spin_(spin) {
  calls_.reserve(kCallsAtOnce);
}

Status Decoder::run() {
  for (;;) {
    Frame frame;
    Result<bool> whole = reader_.next(&frame);
    if (!whole.ok()) return whole.status();
    if (*whole) {
      Result<bool> ended = handle(frame);
      if (!ended.ok()) return ended.status();
      if (*ended) return {};
      continue;
    }
    Result<std::size_t> received = receive();
    if (!received.ok()) {
      if (received.status().code() != Code::kDeadline) return received.status();
      return Status(Code::kPeerGone, "the client has sent nothing for " +
                                         std::to_string(silence_deadline_.count()) + " ms");
    }
    reader_.filled(*received);
  }
}

// One byte is a sign of life, so a large frame on a slow link is not silence.
Result<std::size_t> Decoder::receive() {
  Result<std::size_t> received = std::size_t{0};
  const bool came = spin_.wait([&] {
    received = log_.receive_some(reader_.space(), true);
    return !received.ok() || *received != 0;
  });
  if (came) return received;
  sink_.idle();
  const auto start = BriefSpin::Clock::now();
  received = log_.receive(reader_.space(), 1, Deadline::in(silence_deadline_));
  spin_.slept(BriefSpin::Clock::now() - start);
  return received;
}

Result<bool> Decoder::handle(const Frame& frame) {
  GPURUN_RETURN_IF_ERROR(outbox_.acknowledged(frame.header.acknowledged));
  switch (frame.header.kind) {
    case FrameKind::kRecords:
      GPURUN_RETURN_IF_ERROR(take_records(frame.header.sequence, frame.payload));
      return false;
    case FrameKind::kPackedRecords: {
      Result<ByteView> records = unpacker_.unpack(frame.payload);
      if (!records.ok()) return records.status();
      GPURUN_RETURN_IF_ERROR(take_records(frame.header.sequence, *records));
      return false;
    }
    case FrameKind::kAcknowledge:
    case FrameKind::kHeartbeat:
      return false;
    case FrameKind::kGoodbye:
      return true;
    case FrameKind::kReplies:
    case FrameKind::kControl:
    case FrameKind::kChunk:
    case FrameKind::kChunkReceipt:
    case FrameKind::kChunkAbandoned:
    case FrameKind::kChunkWanted:
    case FrameKind::kChunkWritten:
    case FrameKind::kChunkPacked:
      break;
  }
  return Status(Code::kProtocol, "a frame of kind " +
                                     std::to_string(static_cast<int>(frame.header.kind)) +
                                     " has no business on an attached log channel");
}

Status Decoder::take_records(std::uint64_t first, ByteView records) {
  ByteView rest = records;
  std::uint64_t number = first;
  if (number == 0 || number > taken_ + 1) return gap(taken_ + 1, number);
  calls_.clear();
  calls_bytes_ = 0;
  for (; !rest.empty(); ++number) {
    Result<RecordView> record = protocol::parse_record(rest);
    if (!record.ok()) return record.status();
    if (record->header.sequence != number) return gap(number, record->header.sequence);
    rest = rest.subspan(record->header.bytes);

    if (number <= taken_ + calls_.size()) continue;
    calls_.push_back(*record);
    calls_bytes_ += record->header.bytes;
    if (calls_.size() == kCallsAtOnce) GPURUN_RETURN_IF_ERROR(hand_on());
  }
  sink_.received(number - first, records.size());
  GPURUN_RETURN_IF_ERROR(hand_on());
  outbox_.acknowledge_when_due();
  return {};
}

// Replies to these calls acknowledge them. Otherwise the client would wake once more for that.
Status Decoder::hand_on() {
  if (calls_.empty()) return {};
  taken_ += calls_.size();
  outbox_.owes(static_cast<std::size_t>(std::count_if(
      calls_.begin(), calls_.end(),
      [](const RecordView& call) { return (call.header.flags & protocol::kFlagFence) != 0; })));
  outbox_.taken(taken_, std::exchange(calls_bytes_, 0));
  const Status accepted = sink_.accept(calls_);
  calls_.clear();
  return accepted;
}

}  // namespace gpurun::server
