// Executor: the worker from its connection to its driver. Calls reach the driver in CUDA's order
// with their context current, replies reach the client, and a waiting or blocking call delays no
// other.
#include "server/worker/execution/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "server/worker/channels/worker.h"
#include "server/worker/execution/thread_context.h"
#include "server/worker/stats/statistics_counter.h"
#include "tests/unit/server/worker/execution/executor_under_test.h"

namespace gpurun::server {
namespace {

using ::testing::ElementsAre;

TEST_F(ExecutorTest, CountsEachCallOnce) {
  StatisticsCounter statistics;
  options_.statistics = &statistics;
  start();
  const auto counted = [&statistics](std::uint16_t opcode) {
    for (const protocol::WorkerRow& row : statistics.statistics().rows) {
      if (row.opcode == opcode) return row;
    }
    return protocol::WorkerRow();
  };
  call(kRun, Order::kStream, kStreamX);
  call(kFail, Order::kStream, kStreamX);
  call(kHoldUntilOpen, Order::kStream, kStreamX);
  call(kRun, Order::kStream, kStreamX);
  const std::uint64_t parked = call(kWaitForGate, Order::kLane, 0, kFence);
  EXPECT_EQ(counted(kRun).calls, 1u);
  EXPECT_EQ(counted(kFail).failures, 1u);
  EXPECT_EQ(counted(kHoldUntilOpen).calls, 0u);  // Tried, but not issued yet.
  open();
  while (counted(kRun).calls < 2) std::this_thread::yield();
  EXPECT_EQ(counted(kHoldUntilOpen).calls, 1u);
  EXPECT_EQ(counted(kRun).failures, 0u);
  EXPECT_GT(counted(kRun).queue_ns, 0u);  // The second one waited behind the held call.
  EXPECT_LE(counted(kRun).queue_longest_ns, counted(kRun).queue_ns);
  EXPECT_EQ(receive().header.kind, protocol::ReplyKind::kCallError);
  EXPECT_EQ(receive().header.call_sequence, parked);
  EXPECT_EQ(counted(kWaitForGate).calls, 1u);
  EXPECT_GT(counted(kWaitForGate).driver_ns, 0u);
  executor_.reset();  // It borrows the statistics.
}

TEST_F(ExecutorTest, FenceReplyCarriesResults) {
  const std::uint32_t value = 42;
  call(kRun, Order::kContext);
  call(kEcho, Order::kContext, 0, kFence, bytes_of(value));
  const Reply reply = receive();
  EXPECT_EQ(reply.header.kind, protocol::ReplyKind::kReply);
  EXPECT_EQ(reply.header.call_sequence, 2U);
  EXPECT_EQ(reply.header.result, 0);
  ASSERT_EQ(reply.payload.size(), sizeof value);
  EXPECT_EQ(std::memcmp(reply.payload.data(), &value, sizeof value), 0);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "2"));
}

TEST_F(ExecutorTest, ReportsFailedCallWithoutFence) {
  call(kFail, Order::kStream, kStreamX);
  const Reply reply = receive();
  EXPECT_EQ(reply.header.kind, protocol::ReplyKind::kCallError);
  EXPECT_EQ(reply.header.result, 700);
  EXPECT_EQ(reply.header.flags, protocol::kReplyFlagSticky);
  EXPECT_EQ(reply.header.context, kContext);
  EXPECT_EQ(reply.header.call_sequence, 1U);
}

TEST_F(ExecutorTest, UnknownCallsAndHandlesReturnErrors) {
  call(4000, Order::kContext, 0, kFence);
  EXPECT_EQ(receive().header.result, kErrorNotSupported);
  call(65535, Order::kContext, 0, kFence);
  EXPECT_EQ(receive().header.result, kErrorNotSupported);
  call(kRun, Order::kStream, 0x1234, kFence);
  EXPECT_EQ(receive().header.result, kErrorInvalidHandle);
  EXPECT_TRUE(stage_.said().empty());
}

TEST_F(ExecutorTest, HeldCallStallsOnlyItsStreamAndResumesWhenWoken) {
  const std::uint64_t value = 7;
  call(kHoldUntilOpen, Order::kStream, kStreamX, kFence);
  call(kEcho, Order::kStream, kStreamX, kFence, bytes_of(value));
  call(kRun, Order::kStream, kStreamY, kFence);
  EXPECT_EQ(receive().header.call_sequence, 3U);
  open();
  EXPECT_EQ(receive().header.call_sequence, 1U);
  const Reply reply = receive();
  EXPECT_EQ(reply.header.call_sequence, 2U);  // Its payload outlived the frame.
  ASSERT_EQ(reply.payload.size(), sizeof value);
  EXPECT_EQ(std::memcmp(reply.payload.data(), &value, sizeof value), 0);
  EXPECT_THAT(stage_.said(), ElementsAre("3", "1", "2"));
}

TEST(WorkerOptionsTest, DefaultsMatchProtocolLimits) {
  EXPECT_EQ(WorkerOptions{}.heartbeat, std::chrono::seconds(limits::kHeartbeatS));
  EXPECT_EQ(WorkerOptions{}.silence_deadline, std::chrono::seconds(limits::kSilenceDeadlineS));
}

TEST_F(ExecutorTest, StopsReadingWhenQueueIsFull) {
  const Bytes payload(protocol::kRecordPayloadBytesMax);
  call(kHoldUntilOpen, Order::kStream, kStreamX);
  // Each counts its record and a little more, so this many surely exceed the bound.
  constexpr std::size_t kEnough = limits::kQueuedBytesMax / limits::kRecordBytesMax;
  std::atomic<std::size_t> taken{0};
  auto client = std::async(std::launch::async, [&] {
    for (std::size_t i = 0; i < kEnough + 1; ++i) {
      call(kRun, Order::kStream, kStreamX, 0, payload);
      ++taken;
    }
  });
  EXPECT_EQ(client.wait_for(200ms), std::future_status::timeout);
  const Deadline deadline = Deadline::in(kWait);
  while (taken < kEnough - 1 && !deadline.passed()) std::this_thread::yield();
  EXPECT_GE(taken, kEnough - 1);  // All that fits was taken ...
  EXPECT_LE(taken, kEnough);      // ... and no more.
  open();
  EXPECT_EQ(client.wait_for(kWait), std::future_status::ready);
  EXPECT_EQ(stage_.said().size(), taken + 1);
}

// The end of the turn comes behind everything that is queued.
TEST_F(ExecutorTest, KeepsReadingDuringClientTurn) {
  EXPECT_EQ(options_.queued_behind_client_bytes_max, limits::kQueuedBehindClientBytesMax);
  options_.queued_bytes_max = std::size_t{64} << 10;
  options_.queued_behind_client_bytes_max = std::size_t{256} << 10;
  start();
  const auto fill = [this](int calls) {
    for (int i = 0; i < calls; ++i) call(kRun, Order::kStream, kStreamX);
  };
  call(kHoldUntilOpen, Order::kStream, kStreamX);
  executor_->begin_client_turn();
  fill(100);  // Each counts more than 1 KiB.
  executor_->end_client_turn();
  auto client = std::async(std::launch::async, [&] { fill(1); });
  EXPECT_EQ(client.wait_for(100ms), std::future_status::timeout);
  executor_->begin_client_turn();  // On another thread: a thread that waits for room continues.
  if (client.wait_for(kWait) != std::future_status::ready) {
    open();
    FAIL() << "the decoder waits for room";
  }

  protocol::RecordView record;
  record.header.form = protocol::Form::kRaw;
  record.header.order = Order::kStream;
  record.header.stream = kStreamX;
  record.header.context = kContext;
  record.header.bytes = protocol::kRecordHeaderBytes;
  Status status;
  int taken = 0;
  for (; taken < 1000 && status.ok(); ++taken) {
    record.header.sequence = ++last_;
    status = executor_->accept({&record, 1});
  }
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_GT(taken, 100);
  EXPECT_LT(taken, 160);
  executor_->end_client_turn();
  open();
}

TEST_F(ExecutorTest, ParkedCallDelaysNoOtherCall) {
  call(kWaitForGate, Order::kStream, kStreamX, kFence);
  call(kRun, Order::kStream, kStreamX, kFence);
  call(kRun, Order::kContext, 0, kFence);
  EXPECT_EQ(receive().header.call_sequence, 2U);
  EXPECT_EQ(receive().header.call_sequence, 3U);
  open();
  EXPECT_EQ(receive().header.call_sequence, 1U);
}

TEST_F(ExecutorTest, OrderedHostCallDelaysOnlyContextCalls) {
  call(kBlockOnGate, Order::kOrderedHost);
  call(kRun, Order::kContext);
  call(kRun, Order::kLane, 0, kFence);  // After the context call.
  call(kRun, Order::kImmediate, 0, kFence);
  EXPECT_EQ(receive().header.call_sequence, 4U);
  open();
  EXPECT_EQ(receive().header.call_sequence, 3U);
  EXPECT_THAT(stage_.said(), ElementsAre("4", "1", "2", "3"));
}

TEST_F(ExecutorTest, StreamCallPassesRunningOrderedHostCall) {
  call(kBlockOnGate, Order::kOrderedHost);
  call(kRun, Order::kStream, kStreamX, kFence);
  EXPECT_EQ(receive().header.call_sequence, 2U);
  open();
}

TEST_F(ExecutorTest, StreamsWaitForBarrierOnDevice) {
  call(kRun, Order::kStream, 0, protocol::kFlagBarrier);
  call(kRun, Order::kStream, kStreamX);
  call(kRun, Order::kStream, kStreamX);
  note_capture();
  stage_.capturing = 1;
  call(kRun, Order::kStream, kStreamY);  // Our event may not enter the program's graph.
  stage_.capturing = 0;
  call(kRun, Order::kStream, kStreamY);
  stage_.event_state = 0;
  call(kRun, Order::kStream, protocol::kStreamPerThread);  // It is complete: no wait.
  EXPECT_THAT(stage_.said(),
              ElementsAre("1", "record in 0", "wait in 22", "2", "3", "4", "wait in 33", "5", "6"));
}

TEST_F(ExecutorTest, DestructorDropsQueuedCalls) {
  call(kHoldUntilOpen, Order::kStream, kStreamX);
  call(kRun, Order::kStream, kStreamX);
  executor_.reset();
  EXPECT_TRUE(stage_.said().empty());
}

TEST_F(ExecutorTest, WorkerServesConnectionUntilGoodbye) {
  executor_.reset();
  options_.ended = [](const Status& status) { stage->say(status.ok() ? "ended" : "failed"); };
  auto [client, worker] = transport::loopback::connect_pair();
  WorkerChannels channels;
  channels.log = std::move(worker);
  auto ended = std::async(std::launch::async,
                          [this, &channels] { return run_worker(options_, std::move(channels)); });
  RecordHeader record;
  record.bytes = sizeof record;
  record.opcode = kRun;
  record.form = protocol::Form::kRaw;
  record.flags = kFence;
  record.sequence = 1;
  protocol::FrameHeader frame;
  frame.kind = protocol::FrameKind::kRecords;
  frame.sequence = 1;
  frame.payload_bytes = sizeof record;
  const ByteView parts[] = {bytes_of(frame), bytes_of(record)};
  ASSERT_TRUE(client->send(parts, Deadline::in(kWait)).ok());
  pair_.first = std::move(client);
  const Reply reply = receive();
  EXPECT_EQ(reply.header.call_sequence, 1U);
  EXPECT_EQ(reply.header.result, 0);
  protocol::FrameHeader goodbye;
  goodbye.kind = protocol::FrameKind::kGoodbye;
  const ByteView last[] = {bytes_of(goodbye)};
  ASSERT_TRUE(pair_.first->send(last, Deadline::in(kWait)).ok());
  ASSERT_EQ(ended.wait_for(kWait), std::future_status::ready);
  EXPECT_TRUE(ended.get().ok());
  EXPECT_THAT(stage_.said(), ElementsAre("1", "ended"));
}

// Otherwise a wait for the context would run where all other calls are issued.
TEST_F(ExecutorTest, ContextIsDoneDependsOnlyOnItsOwnStreams) {
  constexpr std::uint16_t kIsDone = kRun2 + 1;
  constexpr std::uintptr_t kBusy = 22, kOtherOfDriver = 12;  // Stream X, and kOtherContext.
  options_.driver.cuStreamQuery = [](void* stream) {
    return stream == reinterpret_cast<void*>(kBusy) ? kErrorNotReady : 0;
  };
  options_.driver.cuStreamGetCtx = [](void*, void** context) {
    *context = reinterpret_cast<void*>(kOtherOfDriver);
    return 0;
  };
  options_.handlers.by_opcode[kIsDone] = [](Call& call) {
    return CallOutcome::done(call.executor().context_is_done(call) ? 0 : kErrorNotReady);
  };
  start();
  call(kRun, Order::kStream, kStreamX);
  call(kIsDone, Order::kLane, 0, kFence);
  EXPECT_EQ(receive().header.result, 0);
  protocol::RecordView other = next_record(kIsDone, Order::kLane, 0, kFence, {});
  other.header.context = kOtherContext;
  EXPECT_TRUE(executor_->accept({&other, 1}).ok());
  EXPECT_EQ(receive().header.result, kErrorNotReady);
}

}  // namespace
}  // namespace gpurun::server
