// Frames and records from a hostile peer: every length and enumeration is checked, one byte over
// each bound is refused, and what is well formed passes unchanged.
#include "protocol/frame.h"

#include <gtest/gtest.h>

#include <cstring>

#include "protocol/frame_reader.h"
#include "protocol/record.h"

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

TEST(Frame, RefusesWhatIsNoFrame) {
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
  bad.kind = FrameKind::kHeartbeat;  // Carries nothing.
  bad.payload_bytes = 1;
  EXPECT_EQ(parse_frame_header(bytes_of(bad)).status().code(), Code::kProtocol);
  EXPECT_FALSE(parse_frame_header(bytes_of(good).first(23)).ok());
}

TEST(Frame, ReaderPutsSplitFramesTogether) {
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

TEST(Frame, BulkHeaderStaysInsideItsTransfer) {
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
}

TEST(Record, LaunchIsAsLargeAsItSays) {
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

TEST(Record, CopiesNeedTheirBytesOrATransfer) {
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
  body.copy.bytes = limits::kInlineBytesMax + 1;
  EXPECT_FALSE(parse_record(record_with(header, &body, sizeof(CopyPayload))).ok());
}

TEST(Record, HeaderFieldsAreBounded) {
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
  bad = good;
  bad.lane = limits::kLanesMax;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.subject = 0;
  EXPECT_TRUE(refused(bad));
  const Bytes whole = record_with(good, &body, sizeof body);
  EXPECT_FALSE(parse_record(ByteView(whole).first(whole.size() - 8)).ok());
}

}  // namespace
}  // namespace gpurun::protocol
