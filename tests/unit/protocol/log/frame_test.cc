// Frames and records from a hostile peer: every length and enumeration is checked, one byte over
// each bound is refused, and well-formed ones pass unchanged.
#include "protocol/log/frame.h"

#include <gtest/gtest.h>

#include <cstring>

#include "protocol/log/frame_reader.h"
#include "protocol/log/record.h"

namespace gpurun::protocol {
namespace {

Bytes record_with(RecordHeader header, const void* payload, std::size_t payload_bytes) {
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  header.bytes = static_cast<std::uint32_t>(record_bytes(payload_bytes));
  Bytes bytes(header.bytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  if (payload_bytes != 0) std::memcpy(bytes.data() + sizeof header, payload, payload_bytes);
  return bytes;
}

RecordHeader stream_record(Form form) {
  RecordHeader header;
  header.opcode = 7;
  header.form = form;
  header.order = Order::kStream;
  header.sequence = 1;
  header.subject = 5;
  return header;
}

TEST(Frame, RefusesInvalidHeader) {
  FrameHeader good;
  good.kind = FrameKind::kRecords;
  good.payload_bytes = limits::kFrameBytesMax;
  EXPECT_TRUE(parse_frame_header(bytes_of(good)).ok());
  FrameHeader bad = good;
  bad.payload_bytes++;
  EXPECT_EQ(parse_frame_header(bytes_of(bad)).status().code(), Code::kProtocol);
  bad = good;
  bad.magic ^= 1;
  EXPECT_EQ(parse_frame_header(bytes_of(bad)).status().code(), Code::kProtocol);
  bad = good;
  bad.kind = static_cast<FrameKind>(kFrameKindMax + 1);
  EXPECT_EQ(parse_frame_header(bytes_of(bad)).status().code(), Code::kProtocol);
  bad = good;
  bad.flags = 1;
  EXPECT_EQ(parse_frame_header(bytes_of(bad)).status().code(), Code::kProtocol);
  bad = good;
  bad.kind = FrameKind::kHeartbeat;  // It has no payload.
  bad.payload_bytes = 1;
  EXPECT_EQ(parse_frame_header(bytes_of(bad)).status().code(), Code::kProtocol);
  EXPECT_FALSE(parse_frame_header(bytes_of(good).first(23)).ok());
}

TEST(Frame, EachKindHasItsOwnBound) {
  const auto taken = [](FrameKind kind, std::size_t payload_bytes) {
    FrameHeader header;
    header.kind = kind;
    header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
    return parse_frame_header(bytes_of(header)).ok();
  };
  constexpr std::size_t kChunkMax = kBulkHeaderBytes + limits::kBulkChunkBytes;
  const std::pair<FrameKind, std::size_t> bounds[] = {
      {FrameKind::kRecords, limits::kFrameBytesMax},
      {FrameKind::kReplies, limits::kFrameBytesMax},
      {FrameKind::kControl, limits::kFrameBytesMax},
      {FrameKind::kGoodbye, limits::kHelloBytesMax},
      {FrameKind::kChunk, kChunkMax},
      {FrameKind::kChunkReceipt, kBulkHeaderBytes},
      {FrameKind::kChunkAbandoned, kBulkHeaderBytes},
      {FrameKind::kAcknowledge, 0},
      {FrameKind::kHeartbeat, 0}};
  for (const auto& [kind, most] : bounds) {
    EXPECT_TRUE(taken(kind, most)) << static_cast<int>(kind);
    EXPECT_FALSE(taken(kind, most + 1)) << static_cast<int>(kind);
  }
}

TEST(Frame, ReaderJoinsSplitFrames) {
  Bytes stream;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    FrameHeader header;
    header.kind = FrameKind::kReplies;
    header.payload_bytes = 8;
    header.sequence = number;
    const ByteView head = bytes_of(header);
    stream.insert(stream.end(), head.begin(), head.end());
    const ByteView body = bytes_of(number);
    stream.insert(stream.end(), body.begin(), body.end());
  }
  FrameReader reader;
  std::uint64_t expected = 1;
  for (const std::byte one : stream) {
    reader.space()[0] = one;
    reader.filled(1);
    Frame frame;
    const Result<bool> whole = reader.next(&frame);
    ASSERT_TRUE(whole.ok());
    if (!*whole) continue;
    EXPECT_EQ(frame.header.sequence, expected);
    EXPECT_EQ(std::memcmp(frame.payload.data(), &expected, 8), 0);
    ++expected;
  }
  EXPECT_EQ(expected, 4u);
  EXPECT_TRUE(reader.drained());
}

TEST(Frame, RefusesBulkHeaderOutsideTransfer) {
  BulkHeader header;
  header.transfer = 1;
  header.total = 100;
  header.offset = 90;
  EXPECT_TRUE(parse_bulk_header(FrameKind::kChunk, bytes_of(header), 10).ok());
  EXPECT_FALSE(parse_bulk_header(FrameKind::kChunk, bytes_of(header), 11).ok());
  header.offset = ~std::uint64_t{0};
  EXPECT_FALSE(parse_bulk_header(FrameKind::kChunk, bytes_of(header), 10).ok());
  header.offset = 0;
  header.transfer = 0;
  EXPECT_FALSE(parse_bulk_header(FrameKind::kChunk, bytes_of(header), 1).ok());
  header.transfer = 1;
  EXPECT_FALSE(parse_bulk_header(FrameKind::kChunkReceipt, bytes_of(header), 1).ok());
  header.total = limits::kBulkBytesMax + 1;
  EXPECT_FALSE(parse_bulk_header(FrameKind::kChunk, bytes_of(header), 1).ok());
  header.total = limits::kBulkBytesMax;
  EXPECT_TRUE(parse_bulk_header(FrameKind::kChunk, bytes_of(header), 1).ok());
  EXPECT_TRUE(parse_bulk_header(FrameKind::kChunk, bytes_of(header), limits::kBulkChunkBytes).ok());
  EXPECT_FALSE(
      parse_bulk_header(FrameKind::kChunk, bytes_of(header), limits::kBulkChunkBytes + 1).ok());
}

TEST(Record, AcceptsLargestRecordAndRefusesLarger) {
  RecordHeader header = stream_record(Form::kRaw);
  const Bytes most(kRecordPayloadBytesMax);
  const Bytes whole = record_with(header, most.data(), most.size());
  EXPECT_EQ(whole.size(), limits::kRecordBytesMax);
  const Result<RecordView> record = parse_record(whole);
  ASSERT_TRUE(record.ok()) << record.status().to_string();
  EXPECT_EQ(record->payload.size(), most.size());
  const Bytes more(kRecordPayloadBytesMax + 1);
  const Status refused = parse_record(record_with(header, more.data(), more.size())).status();
  EXPECT_EQ(refused.code(), Code::kProtocol);
  EXPECT_NE(refused.message().find("wrong size"), std::string::npos) << refused.message();
}

TEST(Record, AcceptsLargestReplyAndRefusesLarger) {
  const auto taken = [](std::size_t payload_bytes) {
    ReplyHeader header;
    header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
    header.bytes = static_cast<std::uint32_t>(reply_bytes(payload_bytes));
    Bytes bytes(header.bytes);
    std::memcpy(bytes.data(), &header, sizeof header);
    return parse_reply(bytes).ok();
  };
  EXPECT_EQ(reply_bytes(kReplyPayloadBytesMax), limits::kRecordBytesMax);
  EXPECT_TRUE(taken(kReplyPayloadBytesMax));
  EXPECT_FALSE(taken(kReplyPayloadBytesMax + 1));
}

TEST(Record, RefusesParameterBlockOverBound) {
  const auto taken = [](std::size_t parameter_bytes) {
    LaunchPayload launch;
    launch.parameter_bytes = static_cast<std::uint32_t>(parameter_bytes);
    Bytes body(launch_attributes_offset(parameter_bytes));
    std::memcpy(body.data(), &launch, sizeof launch);
    return parse_record(record_with(stream_record(Form::kLaunch), body.data(), body.size())).ok();
  };
  EXPECT_TRUE(taken(limits::kKernelParameterBytesMax));
  EXPECT_FALSE(taken(limits::kKernelParameterBytesMax + 1));
}

TEST(Record, RefusesLaunchOfWrongSize) {
  struct {
    LaunchPayload launch;
    std::byte parameters[16];
  } body{};
  body.launch.parameter_bytes = 16;
  const RecordHeader header = stream_record(Form::kLaunch);
  EXPECT_TRUE(parse_record(record_with(header, &body, sizeof body)).ok());
  EXPECT_FALSE(parse_record(record_with(header, &body, sizeof body - 8)).ok());
  body.launch.attribute_count = 1;
  EXPECT_FALSE(parse_record(record_with(header, &body, sizeof body)).ok());
  body.launch.attribute_count = ~0u;
  EXPECT_FALSE(parse_record(record_with(header, &body, sizeof body)).ok());
  body.launch.attribute_count = 0;
  body.launch.parameter_bytes = ~0u;
  EXPECT_FALSE(parse_record(record_with(header, &body, sizeof body)).ok());
}

TEST(Record, RefusesCopyWithoutBytesOrTransfer) {
  struct {
    CopyPayload copy;
    std::byte data[8];
  } body{};
  body.copy.bytes = 8;
  RecordHeader header = stream_record(Form::kCopyInline);
  EXPECT_TRUE(parse_record(record_with(header, &body, sizeof body)).ok());
  body.copy.bytes = 9;
  EXPECT_FALSE(parse_record(record_with(header, &body, sizeof body)).ok());
  header.form = Form::kCopyIn;
  EXPECT_FALSE(parse_record(record_with(header, &body, sizeof(CopyPayload))).ok());
  header.bulk = 3;
  EXPECT_TRUE(parse_record(record_with(header, &body, sizeof(CopyPayload))).ok());
  header.bulk = 0;
  header.form = Form::kCopyOut;
  EXPECT_FALSE(parse_record(record_with(header, &body, sizeof(CopyPayload))).ok());
  header.flags = kFlagFence;
  EXPECT_TRUE(parse_record(record_with(header, &body, sizeof(CopyPayload))).ok());
  body.copy.bytes = limits::kInlineBytesMax;
  EXPECT_TRUE(parse_record(record_with(header, &body, sizeof(CopyPayload))).ok());
  body.copy.bytes = limits::kInlineBytesMax + 1;
  EXPECT_FALSE(parse_record(record_with(header, &body, sizeof(CopyPayload))).ok());
  header.bulk = 3;
  body.copy.bytes = limits::kBulkBytesMax;
  EXPECT_TRUE(parse_record(record_with(header, &body, sizeof(CopyPayload))).ok());
  body.copy.bytes = limits::kBulkBytesMax + 1;
  EXPECT_FALSE(parse_record(record_with(header, &body, sizeof(CopyPayload))).ok());
}

TEST(Record, RefusesPulledCopyFromImpossibleMemory) {
  struct Body {
    CopyPayload copy;
    PulledSource source;
  };
  Body good{};
  good.copy.bytes = good.source.bytes = limits::kPulledBytesMin;
  RecordHeader header = stream_record(Form::kCopyIn);
  header.bulk = 3;
  header.flags = kFlagBulkOnDemand | kFlagPulled;
  const auto parses = [&header](const Body& body, std::size_t bytes = sizeof(Body)) {
    return parse_record(record_with(header, &body, bytes)).ok();
  };
  EXPECT_TRUE(parses(good));
  EXPECT_FALSE(parses(good, sizeof(Body) - 8));
  EXPECT_FALSE(parses(good, sizeof(CopyPayload)));
  Body bad = good;
  bad.copy.bytes = bad.source.bytes = limits::kPulledBytesMin - 1;
  EXPECT_FALSE(parses(bad));
  bad = good;
  ++bad.source.bytes;
  EXPECT_FALSE(parses(bad)) << "other bytes than are copied";
  bad = good;
  bad.source.address = ~std::uint64_t{0} - limits::kPulledBytesMin;
  EXPECT_TRUE(parses(bad));
  ++bad.source.address;
  EXPECT_FALSE(parses(bad)) << "beyond the last address";
  bad = good;
  bad.source.in_turn = 2;
  EXPECT_FALSE(parses(bad));
  header.flags = kFlagPulled;
  EXPECT_FALSE(parses(good)) << "nothing that the client can be asked for";
  header.flags = kFlagBulkOnDemand;
  EXPECT_FALSE(parses(good)) << "a source without its flag";
  header.flags = kFlagBulkOnDemand | kFlagPulled;
  header.form = Form::kCopyOut;
  EXPECT_FALSE(parses(good));
}

TEST(Record, RefusesWrittenCopyToImpossibleMemory) {
  struct Body {
    CopyPayload copy;
    WrittenDestination destination;
  };
  Body good{};
  good.copy.bytes = good.destination.bytes = limits::kPulledBytesMin;
  RecordHeader header = stream_record(Form::kCopyOut);
  header.bulk = 3;
  header.flags = kFlagWritten;
  const auto parses = [&header](const Body& body, std::size_t bytes = sizeof(Body)) {
    return parse_record(record_with(header, &body, bytes)).ok();
  };
  EXPECT_TRUE(parses(good));
  header.flags = kFlagWritten | kFlagFence;
  EXPECT_TRUE(parses(good));
  EXPECT_FALSE(parses(good, sizeof(Body) - 8));
  EXPECT_FALSE(parses(good, sizeof(CopyPayload)));
  Body bad = good;
  bad.copy.bytes = bad.destination.bytes = limits::kPulledBytesMin - 1;
  EXPECT_FALSE(parses(bad));
  bad = good;
  ++bad.destination.bytes;
  EXPECT_FALSE(parses(bad)) << "other bytes than are copied";
  bad = good;
  bad.destination.address = ~std::uint64_t{0} - limits::kPulledBytesMin;
  EXPECT_TRUE(parses(bad));
  ++bad.destination.address;
  EXPECT_FALSE(parses(bad)) << "beyond the last address";
  bad = good;
  bad.destination.reserved = 1;
  EXPECT_FALSE(parses(bad));
  header.bulk = 0;
  EXPECT_FALSE(parses(good)) << "bytes in the reply";
  header.bulk = 3;
  header.flags = 0;
  EXPECT_FALSE(parses(good)) << "a destination without its flag";
  header.flags = kFlagWritten;
  header.form = Form::kCopyIn;
  EXPECT_FALSE(parses(good));
}

TEST(Record, RefusesBoxOfWrongSize) {
  struct {
    BoxCopyPayload box;
    std::byte data[24];
  } body{};
  body.box.copy.bytes = 24;
  body.box.width = 4;
  body.box.lines = 3;
  body.box.slices = 2;
  RecordHeader header = stream_record(Form::kCopyInline);
  header.flags = kFlagBox;
  const auto taken = [&](std::size_t bytes) {
    return parse_record(record_with(header, &body, bytes)).ok();
  };
  EXPECT_TRUE(taken(sizeof body));
  EXPECT_FALSE(taken(sizeof body - 8));
  EXPECT_FALSE(taken(sizeof body.box - 8));
  header.form = Form::kCopyDevice;
  EXPECT_TRUE(taken(sizeof body.box));
  EXPECT_FALSE(taken(sizeof body));
  body.box.lines = 4;
  EXPECT_FALSE(taken(sizeof body.box));
  body.box.lines = 0;
  body.box.copy.bytes = 0;  // There is nothing to copy, and no division by 0.
  EXPECT_FALSE(taken(sizeof body.box));
  body.box.width = std::uint64_t{1} << 33;
  body.box.lines = std::uint64_t{1} << 33;  // Their product overflows to 4 times 0.
  EXPECT_FALSE(taken(sizeof body.box));
  body.box = {};
  body.box.copy.bytes = limits::kBulkBytesMax + 1;
  body.box.width = limits::kBulkBytesMax + 1;
  body.box.lines = body.box.slices = 1;
  EXPECT_FALSE(taken(sizeof body.box));
  header.form = Form::kMemset;  // Other forms have no boxes.
  EXPECT_FALSE(taken(sizeof(MemsetPayload)));
}

TEST(Record, RefusesInlineCopyOverBound) {
  const auto taken = [](std::size_t bytes) {
    CopyPayload copy;
    copy.bytes = bytes;
    Bytes body(sizeof copy + bytes);
    std::memcpy(body.data(), &copy, sizeof copy);
    return parse_record(record_with(stream_record(Form::kCopyInline), body.data(), body.size()))
        .ok();
  };
  EXPECT_TRUE(taken(limits::kInlineCopyInBytesMax));
  EXPECT_FALSE(taken(limits::kInlineCopyInBytesMax + 1));
}

// A record is checked on a copy of its header, and only the copy is used from then on. Later writes
// to the bytes cannot change the record or its length.
TEST(Record, KeepsCheckedHeaderIfBytesChange) {
  const EventPayload body;
  const RecordHeader header = stream_record(Form::kEventRecord);
  Bytes bytes = record_with(header, &body, sizeof body);
  const Result<RecordView> record = parse_record(bytes);
  ASSERT_TRUE(record.ok());
  std::memset(bytes.data(), 0xff, bytes.size());
  EXPECT_EQ(record->header.bytes, record_bytes(sizeof body));
  EXPECT_EQ(record->header.payload_bytes, sizeof body);
  EXPECT_EQ(record->header.form, Form::kEventRecord);
  EXPECT_EQ(record->payload.size(), sizeof body);
}

TEST(Record, RefusesInvalidHeaderFields) {
  const EventPayload body;
  const RecordHeader good = stream_record(Form::kEventRecord);
  ASSERT_TRUE(parse_record(record_with(good, &body, sizeof body)).ok());
  const auto refused = [&body](const RecordHeader& header) {
    return !parse_record(record_with(header, &body, sizeof body)).ok();
  };
  RecordHeader bad = good;
  bad.form = static_cast<Form>(kFormMax + 1);
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.order = static_cast<Order>(0);
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.order = Order::kContext;  // A hot record belongs to a stream.
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.flags = kFlagsKnown + 1;
  EXPECT_TRUE(refused(bad));
  bad.flags = kFlagPassesStreams;  // The record is in a stream.
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.reserved = 1;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.reserved_16 = 1;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.reserved_64 = std::uint64_t{1} << 63;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.lane = limits::kLanesMax;
  EXPECT_TRUE(refused(bad));
  bad.lane = limits::kLanesMax - 1;
  EXPECT_FALSE(refused(bad));
  bad = good;
  bad.subject = 0;
  EXPECT_TRUE(refused(bad));
  const Bytes whole = record_with(good, &body, sizeof body);
  EXPECT_FALSE(parse_record(ByteView(whole).first(whole.size() - 8)).ok());
}

}  // namespace
}  // namespace gpurun::protocol
