// Records and replies: checked on a copy.
#include "protocol/log/record.h"

#include <cstring>
#include <string>

namespace gpurun::protocol {
namespace {

Status malformed(const RecordHeader& header, const char* what) {
  return Status(Code::kProtocol, std::string("record ") + std::to_string(header.sequence) +
                                     " (opcode " + std::to_string(header.opcode) + "): " + what);
}

Status check_launch(const RecordHeader& header, ByteView payload) {
  LaunchPayload launch;
  if (payload.size() < sizeof launch) return malformed(header, "launch cut short");
  std::memcpy(&launch, payload.data(), sizeof launch);
  if (launch.parameter_bytes > limits::kKernelParameterBytesMax) {
    return malformed(header, "parameter block over the bound");
  }
  if (launch.attribute_count > kLaunchAttributesMax) {
    return malformed(header, "too many launch attributes");
  }
  const std::size_t wanted = launch_attributes_offset(launch.parameter_bytes) +
                             launch.attribute_count * sizeof(LaunchAttribute);
  if (payload.size() != wanted) return malformed(header, "launch of another size than stated");
  return {};
}

Status check_box(const RecordHeader& header, ByteView payload) {
  BoxCopyPayload box;
  if (payload.size() < sizeof box) return malformed(header, "copy of a box cut short");
  std::memcpy(&box, payload.data(), sizeof box);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(box.width, box.lines, &bytes) ||
      __builtin_mul_overflow(bytes, box.slices, &bytes) || bytes == 0 || bytes != box.copy.bytes) {
    return malformed(header, "box of another size than stated");
  }
  return {};
}

Status check_pulled(const RecordHeader& header, std::uint64_t bytes, ByteView rest) {
  PulledSource source;
  if (rest.size() != sizeof source) return malformed(header, "pulled copy of a wrong size");
  std::memcpy(&source, rest.data(), sizeof source);
  std::uint64_t end = 0;
  if (source.bytes != bytes || bytes < limits::kPulledBytesMin || source.in_turn > 1 ||
      __builtin_add_overflow(source.address, source.bytes, &end)) {
    return malformed(header, "pulled copy from impossible memory");
  }
  return {};
}

Status check_written(const RecordHeader& header, std::uint64_t bytes, ByteView rest) {
  WrittenDestination destination;
  if (rest.size() != sizeof destination) return malformed(header, "written copy of a wrong size");
  std::memcpy(&destination, rest.data(), sizeof destination);
  std::uint64_t end = 0;
  if (destination.bytes != bytes || bytes < limits::kPulledBytesMin || destination.reserved != 0 ||
      __builtin_add_overflow(destination.address, destination.bytes, &end)) {
    return malformed(header, "written copy to impossible memory");
  }
  return {};
}

Status check_copy(const RecordHeader& header, ByteView payload) {
  CopyPayload copy;
  const bool box = (header.flags & kFlagBox) != 0;
  if (box) GPURUN_RETURN_IF_ERROR(check_box(header, payload));
  if (payload.size() < sizeof copy) return malformed(header, "copy cut short");
  std::memcpy(&copy, payload.data(), sizeof copy);
  if (copy.bytes > limits::kBulkBytesMax) return malformed(header, "copy over the bound");
  const std::size_t inline_bytes = payload.size() - copy_payload_bytes(header);
  switch (header.form) {
    case Form::kCopyInline:
      if (copy.bytes > limits::kInlineCopyInBytesMax || inline_bytes != copy.bytes) {
        return malformed(header, "inline copy of another size than stated");
      }
      return {};
    case Form::kCopyIn:
      if (header.bulk == 0) return malformed(header, "bulk copy without a transfer");
      if ((header.flags & kFlagPulled) != 0) {
        return check_pulled(header, copy.bytes, payload.subspan(copy_payload_bytes(header)));
      }
      break;
    case Form::kCopyOut:
      if (header.bulk == 0 &&
          ((header.flags & kFlagFence) == 0 || copy.bytes > limits::kInlineBytesMax)) {
        return malformed(header, "copy out without a transfer");
      }
      if ((header.flags & kFlagWritten) != 0) {
        return check_written(header, copy.bytes, payload.subspan(copy_payload_bytes(header)));
      }
      break;
    default:
      break;
  }
  if (inline_bytes != 0) return malformed(header, "copy with bytes that it may not have");
  return {};
}

Status check_memset(const RecordHeader& header, ByteView payload) {
  MemsetPayload memset;
  if (payload.size() != sizeof memset) return malformed(header, "memset of a wrong size");
  std::memcpy(&memset, payload.data(), sizeof memset);
  if (memset.element_bytes != 1 && memset.element_bytes != 2 && memset.element_bytes != 4) {
    return malformed(header, "memset of a wrong element");
  }
  return {};
}

Status check_payload(const RecordHeader& header, ByteView payload) {
  switch (header.form) {
    case Form::kLaunch:
      return check_launch(header, payload);
    case Form::kCopyInline:
    case Form::kCopyIn:
    case Form::kCopyOut:
    case Form::kCopyDevice:
      return check_copy(header, payload);
    case Form::kMemset:
      return check_memset(header, payload);
    case Form::kEventRecord:
    case Form::kStreamWait:
      if (payload.size() != sizeof(EventPayload)) return malformed(header, "wrong size");
      if (header.subject == 0) return malformed(header, "no event");
      return {};
    case Form::kCall:
    case Form::kRaw:
      return {};
  }
  return malformed(header, "unknown form");
}

}  // namespace

Result<RecordView> parse_record(ByteView bytes) {
  RecordView record;
  RecordHeader& header = record.header;
  if (bytes.size() < sizeof header) return Status(Code::kProtocol, "record header cut short");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.bytes > limits::kRecordBytesMax || header.payload_bytes > kRecordPayloadBytesMax ||
      header.bytes != record_bytes(header.payload_bytes)) {
    return malformed(header, "wrong size");
  }
  if (header.bytes > bytes.size()) return malformed(header, "reaches outside its frame");
  const auto form = static_cast<std::uint8_t>(header.form);
  if (form < kFormMin || form > kFormMax) return malformed(header, "unknown form");
  const auto order = static_cast<std::uint8_t>(header.order);
  if (order < kOrderMin || order > kOrderMax) return malformed(header, "unknown order");
  const bool hot = header.form != Form::kCall && header.form != Form::kRaw;
  if (hot && header.order != Order::kStream) return malformed(header, "ordered in no stream");
  if ((header.flags & ~kFlagsKnown) != 0) return malformed(header, "unknown flags");
  if ((header.flags & kFlagTell) != 0 && header.form != Form::kEventRecord) {
    return malformed(header, "nothing to report");
  }
  const bool on_demand = header.order == Order::kOrderedHost || header.form == Form::kCopyIn;
  if ((header.flags & kFlagBulkOnDemand) != 0 && (!on_demand || header.bulk == 0)) {
    return malformed(header, "nothing to ask for");
  }
  const bool pulls = header.form == Form::kCopyIn && (header.flags & kFlagBulkOnDemand) != 0;
  if ((header.flags & kFlagPulled) != 0 && !pulls) return malformed(header, "nothing to pull");
  const bool writes = header.form == Form::kCopyOut && header.bulk != 0;
  if ((header.flags & kFlagWritten) != 0 && !writes) return malformed(header, "nothing to write");
  const bool copies = header.form == Form::kCopyInline || header.form == Form::kCopyIn ||
                      header.form == Form::kCopyOut || header.form == Form::kCopyDevice;
  if ((header.flags & kFlagBox) != 0 && !copies) return malformed(header, "no copy of a box");
  const bool gates = header.order == Order::kContext || header.order == Order::kOrderedHost;
  if ((header.flags & kFlagPassesStreams) != 0 && (!gates || (header.flags & kFlagBarrier) != 0)) {
    return malformed(header, "passes streams, but has no context's order");
  }
  if ((header.reserved_16 | header.reserved_64 | header.reserved) != 0) {
    return malformed(header, "reserved field is used");
  }
  if (header.lane >= limits::kLanesMax) return malformed(header, "lane over the bound");
  if (header.order == Order::kImmediate && (header.flags & kFlagBarrier) != 0) {
    return malformed(header, "a barrier that is ordered nowhere");
  }
  record.payload = bytes.subspan(sizeof header, header.payload_bytes);
  GPURUN_RETURN_IF_ERROR(check_payload(header, record.payload));
  return record;
}

Result<ReplyView> parse_reply(ByteView bytes) {
  ReplyView reply;
  ReplyHeader& header = reply.header;
  if (bytes.size() < sizeof header) return Status(Code::kProtocol, "reply header cut short");
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto kind = static_cast<std::uint8_t>(header.kind);
  if (kind < kReplyKindMin || kind > kReplyKindMax) {
    return Status(Code::kProtocol, "unknown reply kind " + std::to_string(kind));
  }
  if (header.bytes > kReplyBytesMax || header.payload_bytes > kReplyPayloadBytesMax ||
      header.bytes != reply_bytes(header.payload_bytes) || header.bytes > bytes.size()) {
    return Status(Code::kProtocol, "reply of a wrong size");
  }
  constexpr std::uint8_t kReplyFlagsKnown = kReplyFlagSticky | kReplyFlagErrors;
  if (header.reserved != 0 || (header.flags & ~kReplyFlagsKnown) != 0) {
    return Status(Code::kProtocol, "reply with unknown flags");
  }
  if (header.lane >= limits::kLanesMax) {
    return Status(Code::kProtocol, "reply to a lane over the bound");
  }
  reply.payload = bytes.subspan(sizeof header, header.payload_bytes);
  return reply;
}

}  // namespace gpurun::protocol
