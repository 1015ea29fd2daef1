// Reports of streams: a query of a busy stream that asks for a report gets one promise and one
// report. No event goes where it could change what the device does.
#include "server/worker/execution/stream_reports.h"

#include <gtest/gtest.h>

#include "driver_abi/opcodes.h"
#include "server/worker/execution/synchronize.h"
#include "tests/unit/server/worker/channels/raw_client.h"

namespace gpurun::server {
namespace {

using protocol::Form;
using protocol::Order;
using protocol::RecordHeader;
using protocol::ReplyKind;

constexpr std::uint64_t kThreadsOwn = protocol::kStreamPerThread;
constexpr std::uintptr_t kFirst = 1;  // The first stream that the worker makes.
constexpr std::uintptr_t kLegacyWork = 0;

WorkerOptions with_handlers() {
  WorkerOptions options;
  add_synchronize_handlers(options.handlers);
  options.spin = std::chrono::microseconds(0);
  return options;
}

class StreamReportsTest : public ::testing::Test {
 protected:
  RawClient::Item query(std::uint16_t flags, std::uint64_t stream = kThreadsOwn) {
    RecordHeader header;
    header.opcode = driver_abi::opcode::cuStreamQuery;
    header.form = Form::kCall;
    header.order = Order::kStream;
    header.flags = protocol::kFlagFence | flags;
    header.stream = stream;
    last_ = client_.record(header, {}, 1);
    return client_.item();
  }
  void fill(std::uint64_t stream = kThreadsOwn) {
    RecordHeader header;
    header.form = Form::kMemset;
    header.stream = stream;
    protocol::MemsetPayload payload;
    payload.destination = reinterpret_cast<std::uintptr_t>(&memory_);
    payload.element_bytes = 1;
    payload.width = payload.height = 1;
    client_.record(header, bytes_of(payload), 1);
  }
  StepDevice& device() { return StepDevice::device(); }

  RawClient client_{with_handlers()};
  std::uint64_t last_ = 0;
  std::byte memory_{};
};

TEST_F(StreamReportsTest, BusyStreamIsReportedOnce) {
  fill();
  const RawClient::Item answer = query(protocol::kFlagTell);
  EXPECT_EQ(answer.header.result, kErrorNotReady);
  EXPECT_EQ(answer.header.flags, protocol::kReplyFlagTells);
  while (device().queued(kFirst) < 2) std::this_thread::yield();  // The fill and an event.
  device().run(kFirst);
  const RawClient::Item told = client_.item();
  EXPECT_EQ(told.header.kind, ReplyKind::kEventDone);
  EXPECT_EQ(told.header.opcode, driver_abi::opcode::cuStreamQuery);
  EXPECT_EQ(told.header.call_sequence, last_);
  EXPECT_EQ(told.header.lane, 1u);
  EXPECT_EQ(told.header.subject, kThreadsOwn);
  EXPECT_EQ(told.header.result, 0);
  const RawClient::Item after = query(protocol::kFlagTell);  // No second report comes between.
  EXPECT_EQ(after.header.kind, ReplyKind::kReply);
  EXPECT_EQ(after.header.result, 0);
  EXPECT_EQ(after.header.flags, 0);
}

TEST_F(StreamReportsTest, PlainQueryGetsNoReport) {
  fill();
  EXPECT_EQ(query(0).header.flags, 0);
  EXPECT_EQ(device().queued(kFirst), 1u);  // The fill alone.
  device().run(kFirst);
}

// An event in the legacy stream would order all blocking streams.
TEST_F(StreamReportsTest, LegacyStreamGetsNoEvent) {
  constexpr std::uint64_t kLegacy = protocol::kStreamLegacy;
  fill(kLegacy);
  const RawClient::Item answer = query(protocol::kFlagTell, kLegacy);
  EXPECT_EQ(answer.header.result, kErrorNotReady);
  EXPECT_EQ(answer.header.flags, 0);
  EXPECT_EQ(device().queued(kLegacyWork), 1u);
  device().run(kLegacyWork);
}

// The event of a blocking stream would wait for the legacy stream's work, and a later wait for the
// event.
TEST_F(StreamReportsTest, BlockingStreamBesideLegacyWorkGetsNoEvent) {
  constexpr std::uint64_t kLegacy = protocol::kStreamLegacy;
  fill();
  fill(kLegacy);
  EXPECT_EQ(query(protocol::kFlagTell).header.flags, 0);
  EXPECT_EQ(device().queued(kFirst), 1u);
  device().run(kLegacyWork);
  EXPECT_EQ(query(protocol::kFlagTell).header.flags, protocol::kReplyFlagTells);
  while (device().queued(kFirst) < 2) std::this_thread::yield();  // The fill and an event.
  device().run(kFirst);
  EXPECT_EQ(client_.item().header.kind, ReplyKind::kEventDone);
}

TEST_F(StreamReportsTest, FaultIsReported) {
  constexpr int kIllegalAddress = 700;
  fill();
  EXPECT_EQ(query(protocol::kFlagTell).header.flags, protocol::kReplyFlagTells);
  device().fail(kIllegalAddress);
  const RawClient::Item error = client_.item();
  EXPECT_EQ(error.header.kind, ReplyKind::kCallError);
  const RawClient::Item told = client_.item();
  EXPECT_EQ(told.header.kind, ReplyKind::kEventDone);
  EXPECT_EQ(told.header.result, kIllegalAddress);
}

// A hostile client queries for ever. The stream's own bound, or the session's, ends the events.
TEST_F(StreamReportsTest, ReportsUnderWayAreBounded) {
  fill();
  std::size_t promised = 0;
  for (std::size_t i = 0; i < StreamReports::kUnderWayMax + 100; ++i) {
    const RawClient::Item answer = query(protocol::kFlagTell);
    ASSERT_EQ(answer.header.result, kErrorNotReady);
    if (answer.header.flags == protocol::kReplyFlagTells) ++promised;
  }
  EXPECT_GT(promised, 8u);
  EXPECT_LE(promised, StreamReports::kUnderWayMax);
  EXPECT_EQ(query(protocol::kFlagTell).header.flags, 0);
  device().run(kFirst);
}

}  // namespace
}  // namespace gpurun::server
