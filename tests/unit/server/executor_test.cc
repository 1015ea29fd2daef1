// The worker from its connection to its driver: calls reach the driver in the order that CUDA
// demands and with their context current, replies reach the client, and what waits or blocks
// delays nobody else.
#include "server/worker/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <thread>

#include "protocol/handle_form.h"
#include "server/worker/observer.h"
#include "server/worker/outbox.h"
#include "server/worker/worker.h"
#include "transport/loopback/connection.h"

namespace gpurun::server {
namespace {

using namespace std::chrono_literals;
using protocol::Order;
using protocol::RecordHeader;
using ::testing::ElementsAre;

constexpr auto kWait = 10s;

// Opcodes of the test's own calls.
enum Opcode : std::uint16_t {
  kRun,
  kFail,
  kHoldUntilOpen,
  kWaitForGate,
  kBlockOnGate,
  kEcho,
  kRun2
};

std::uint64_t handle(HandleKind kind, std::uint64_t index) {
  return protocol::kHandleTag << protocol::kHandleTagShift |
         static_cast<std::uint64_t>(kind) << protocol::kHandleKindShift | index;
}
const std::uint64_t kContext = handle(HandleKind::kContext, 1);
const std::uint64_t kOtherContext = handle(HandleKind::kContext, 4);
const std::uint64_t kStreamX = handle(HandleKind::kStream, 2);
const std::uint64_t kStreamY = handle(HandleKind::kStream, 3);

// What the scripted driver and the handlers did, and what they wait for.
struct Stage {
  std::mutex mutex;
  std::vector<std::string> events;
  std::promise<void> gate;
  std::shared_future<void> opened{gate.get_future().share()};
  std::atomic<bool> open{false};
  std::atomic<int> event_state{kErrorNotReady};
  std::atomic<int> capturing{0};

  void say(const std::string& what) {
    const std::lock_guard lock(mutex);
    events.push_back(what);
  }
  std::vector<std::string> said() {
    const std::lock_guard lock(mutex);
    return events;
  }
};
Stage* stage = nullptr;
thread_local void* current_context = nullptr;

std::string name(void* value) { return std::to_string(reinterpret_cast<std::uintptr_t>(value)); }

DriverFunctions scripted_driver() {
  DriverFunctions driver;
  driver.cuCtxSetCurrent = [](void* context) {
    current_context = context;
    return 0;
  };
  driver.cuThreadExchangeStreamCaptureMode = [](int*) { return 0; };
  driver.cuStreamCreate = [](void** stream, unsigned) {
    static std::atomic<std::uintptr_t> next{900};
    *stream = reinterpret_cast<void*>(next++);
    return 0;
  };
  driver.cuStreamGetFlags = [](void*, unsigned* flags) {
    *flags = 1;
    return 0;
  };
  driver.cuStreamIsCapturing = [](void*, int* status) {
    *status = stage->capturing;
    return 0;
  };
  driver.cuEventCreate = [](void** event, unsigned) {
    *event = reinterpret_cast<void*>(std::uintptr_t{77});
    return 0;
  };
  driver.cuEventRecord = [](void*, void* stream) {
    stage->say("record in " + name(stream));
    return 0;
  };
  driver.cuEventQuery = [](void*) { return stage->event_state.load(); };
  driver.cuStreamWaitEvent = [](void* stream, void*, unsigned) {
    stage->say("wait in " + name(stream));
    return 0;
  };
  return driver;
}

void say(Call& call) {
  EXPECT_EQ(current_context, call.driver_context());
  stage->say(std::to_string(call.header().sequence));
}

CallOutcome run(Call& call) {
  say(call);
  return CallOutcome::done(0);
}
CallOutcome fail(Call& call) {
  say(call);
  return CallOutcome::done(700);
}
CallOutcome hold_until_open(Call& call) {
  if (!stage->open) return CallOutcome::held();
  return run(call);
}
CallOutcome wait_for_gate(Call& call) {
  say(call);
  return CallOutcome::park([](Call& parked) {
    EXPECT_EQ(current_context, parked.driver_context());
    return stage->opened.wait_for(kWait) == std::future_status::ready ? 0 : kErrorUnknown;
  });
}
CallOutcome block_on_gate(Call& call) {
  (void)stage->opened.wait_for(kWait);
  return run(call);
}
CallOutcome echo(Call& call) {
  say(call);
  call.set_reply(call.payload());
  return CallOutcome::done(0);
}

class ExecutorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    stage = &stage_;
    options_.driver = scripted_driver();
    options_.handlers.by_opcode[kRun] = run;
    options_.handlers.by_opcode[kFail] = fail;
    options_.handlers.by_opcode[kHoldUntilOpen] = hold_until_open;
    options_.handlers.by_opcode[kWaitForGate] = wait_for_gate;
    options_.handlers.by_opcode[kBlockOnGate] = block_on_gate;
    options_.handlers.by_opcode[kEcho] = echo;
    start();
  }
  void start() {
    executor_.reset();
    executor_ = std::make_unique<Executor>(options_, outbox_);
    ASSERT_EQ(executor_->handles().bind(kContext, HandleKind::kContext, 11), 0);
    ASSERT_EQ(executor_->handles().bind(kOtherContext, HandleKind::kContext, 12), 0);
    ASSERT_EQ(executor_->handles().bind(kStreamX, HandleKind::kStream, 22), 0);
    ASSERT_EQ(executor_->handles().bind(kStreamY, HandleKind::kStream, 33), 0);
  }
  // Hands one call to the executor; returns its number.
  std::uint64_t call(std::uint16_t opcode, Order order, std::uint64_t stream = 0,
                     std::uint16_t flags = 0, ByteView payload = {}) {
    protocol::RecordView record;
    record.header.opcode = opcode;
    record.header.form = protocol::Form::kRaw;
    record.header.order = order;
    record.header.stream = stream;
    record.header.context = kContext;
    record.header.flags = flags;
    record.header.sequence = ++last_;
    record.header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    record.header.bytes = static_cast<std::uint32_t>(protocol::record_bytes(payload.size()));
    record.payload = payload;
    EXPECT_TRUE(executor_->accept({&record, 1}).ok());
    return last_;
  }
  // A wait for the stream X by lane 1, as the client posts it.
  void wait_early(std::uint64_t context) {
    RecordHeader header;
    header.opcode = options_.handlers.stream_synchronize;
    header.form = protocol::Form::kCall;
    header.stream = kStreamX;
    header.context = context;
    header.flags = protocol::kFlagBarrier;
    header.lane = 1;
    accept(header);
  }
  // A question of `lane` about the stream Y. Returns its number.
  std::uint64_t ask(std::uint64_t context, std::uint32_t lane) {
    RecordHeader header;
    header.opcode = options_.handlers.stream_query;
    header.form = protocol::Form::kCall;
    header.stream = kStreamY;
    header.context = context;
    header.flags = protocol::kFlagFence;
    header.lane = lane;
    accept(header);
    return last_;
  }
  void accept(RecordHeader header) {
    protocol::RecordView record;
    header.order = Order::kStream;
    header.sequence = ++last_;
    header.bytes = sizeof header;
    record.header = header;
    EXPECT_TRUE(executor_->accept({&record, 1}).ok());
  }
  struct Reply {
    protocol::ReplyHeader header;
    Bytes payload;
  };
  Reply receive() {
    protocol::Frame frame;
    for (;;) {
      const auto whole = reader_.next(&frame);
      EXPECT_TRUE(whole.ok());
      if (!whole.ok()) return {};
      if (*whole) break;
      const auto got = pair_.first->receive(reader_.space(), reader_.wanted(), Deadline::in(kWait));
      EXPECT_TRUE(got.ok()) << got.status().to_string();
      if (!got.ok()) return {};
      reader_.filled(*got);
    }
    const auto reply = protocol::parse_reply(frame.payload);
    EXPECT_TRUE(reply.ok());
    if (!reply.ok()) return {};
    return {reply->header, Bytes(reply->payload.begin(), reply->payload.end())};
  }
  void open() {
    stage_.open = true;
    stage_.gate.set_value();
    executor_->wake();
  }

  Stage stage_;
  WorkerOptions options_;
  transport::loopback::Pair pair_ = transport::loopback::connect_pair();
  Outbox outbox_{*pair_.second, kWait};
  std::unique_ptr<Executor> executor_;
  protocol::FrameReader reader_;
  std::uint64_t last_ = 0;
};

constexpr std::uint16_t kFence = protocol::kFlagFence;

TEST_F(ExecutorTest, EachCallIsCountedOnceHoweverItWasIssued) {
  Observer observer;
  options_.observer = &observer;
  start();
  const auto counted = [&observer](std::uint16_t opcode) {
    for (const protocol::WorkerRow& row : observer.statistics().rows) {
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
  EXPECT_EQ(counted(kHoldUntilOpen).calls, 0u);  // Tried, and still to be issued.
  open();
  while (counted(kRun).calls < 2) std::this_thread::yield();
  EXPECT_EQ(counted(kHoldUntilOpen).calls, 1u);
  EXPECT_EQ(counted(kRun).failures, 0u);
  EXPECT_GT(counted(kRun).queue_ns, 0u);  // The second stood behind the one that was held.
  EXPECT_LE(counted(kRun).queue_longest_ns, counted(kRun).queue_ns);
  EXPECT_EQ(receive().header.kind, protocol::ReplyKind::kCallError);
  EXPECT_EQ(receive().header.call_sequence, parked);
  EXPECT_EQ(counted(kWaitForGate).calls, 1u);
  EXPECT_GT(counted(kWaitForGate).driver_ns, 0u);
  executor_.reset();  // It borrows the observer.
}

TEST_F(ExecutorTest, AFenceIsAnsweredWithItsResults) {
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

TEST_F(ExecutorTest, AFailedCallThatNobodyAwaitsIsReported) {
  call(kFail, Order::kStream, kStreamX);
  const Reply reply = receive();
  EXPECT_EQ(reply.header.kind, protocol::ReplyKind::kCallError);
  EXPECT_EQ(reply.header.result, 700);
  EXPECT_EQ(reply.header.flags, protocol::kReplyFlagSticky);
  EXPECT_EQ(reply.header.context, kContext);
  EXPECT_EQ(reply.header.call_sequence, 1U);
}

TEST_F(ExecutorTest, UnknownCallsAndHandlesGetTheirErrors) {
  call(4000, Order::kContext, 0, kFence);
  EXPECT_EQ(receive().header.result, kErrorNotSupported);
  call(65535, Order::kContext, 0, kFence);
  EXPECT_EQ(receive().header.result, kErrorNotSupported);
  call(kRun, Order::kStream, 0x1234, kFence);
  EXPECT_EQ(receive().header.result, kErrorInvalidHandle);
  EXPECT_TRUE(stage_.said().empty());
}

TEST_F(ExecutorTest, AHeldCallStallsItsStreamOnlyAndGoesOnWhenWoken) {
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

TEST(WorkerOptionsTest, TheProductsTimesAreTheBoundsOfTheProtocol) {
  EXPECT_EQ(WorkerOptions{}.heartbeat, std::chrono::seconds(limits::kHeartbeatS));
  EXPECT_EQ(WorkerOptions{}.silence_deadline, std::chrono::seconds(limits::kSilenceDeadlineS));
}

TEST_F(ExecutorTest, ReadsNoFurtherWhenMoreThanItsBoundIsQueued) {
  const Bytes payload(protocol::kRecordPayloadBytesMax);
  call(kHoldUntilOpen, Order::kStream, kStreamX);
  // Each counts its record and a little more: beyond so many the bound is passed for certain.
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

// What ends the turn comes behind all that is queued.
TEST_F(ExecutorTest, ReadsOnWhileTheClientHasATurn) {
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
  executor_->begin_client_turn();  // Elsewhere: whoever waits for room goes on.
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

TEST_F(ExecutorTest, AParkedCallDelaysNobody) {
  call(kWaitForGate, Order::kStream, kStreamX, kFence);
  call(kRun, Order::kStream, kStreamX, kFence);
  call(kRun, Order::kContext, 0, kFence);
  EXPECT_EQ(receive().header.call_sequence, 2U);
  EXPECT_EQ(receive().header.call_sequence, 3U);
  open();
  EXPECT_EQ(receive().header.call_sequence, 1U);
}

TEST_F(ExecutorTest, AnOrderedHostCallDelaysOnlyContextCalls) {
  call(kBlockOnGate, Order::kOrderedHost);
  call(kRun, Order::kContext);
  call(kRun, Order::kLane, 0, kFence);  // After the context call.
  call(kRun, Order::kImmediate, 0, kFence);
  EXPECT_EQ(receive().header.call_sequence, 4U);
  open();
  EXPECT_EQ(receive().header.call_sequence, 3U);
  EXPECT_THAT(stage_.said(), ElementsAre("4", "1", "2", "3"));
}

TEST_F(ExecutorTest, AStreamPassesARunningOrderedHostCall) {
  call(kBlockOnGate, Order::kOrderedHost);
  call(kRun, Order::kStream, kStreamX, kFence);
  EXPECT_EQ(receive().header.call_sequence, 2U);
  open();
}

TEST_F(ExecutorTest, ABarrierComesFirstOnTheDevice) {
  call(kRun, Order::kStream, 0, protocol::kFlagBarrier);
  call(kRun, Order::kStream, kStreamX);
  call(kRun, Order::kStream, kStreamX);
  stage_.capturing = 1;
  call(kRun, Order::kStream, kStreamY);  // An event of ours may not enter the program's graph.
  stage_.capturing = 0;
  call(kRun, Order::kStream, kStreamY);
  stage_.event_state = 0;
  call(kRun, Order::kStream, protocol::kStreamPerThread);  // It is complete: no wait.
  EXPECT_THAT(stage_.said(),
              ElementsAre("1", "record in 0", "wait in 22", "2", "3", "4", "wait in 33", "5", "6"));
}

// A wait for a stream that was answered early (docs/adr/0033): whoever asks later finds it over,
// for the thread that was answered may have told him. Once only: with others that go on being
// answered early the question would never be.
TEST_F(ExecutorTest, AnyLanesQuestionIsAskedOnceBehindAnEarlyWait) {
  options_.handlers.stream_synchronize = kRun2;
  options_.handlers.by_opcode[kRun2] = run;
  options_.handlers.stream_query = kEcho;
  options_.driver.cuEventSynchronize = [](void* event) {
    stage->say("waits for " + name(event));
    return stage->opened.wait_for(kWait) == std::future_status::ready ? 0 : kErrorUnknown;
  };
  start();
  wait_early(kContext);
  const std::uint64_t elsewhere = ask(kOtherContext, 3);
  EXPECT_EQ(receive().header.call_sequence, elsewhere);
  const std::uint64_t question = ask(kContext, 2);
  open();  // The barrier's event is never complete: a later early wait may have recorded it again.
  EXPECT_EQ(receive().header.call_sequence, question);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "record in 22", "2", "waits for 77", "3"));
}

// Behind what was answered early and has not been issued, too.
TEST_F(ExecutorTest, AnyLanesQuestionStandsBehindAQueuedEarlyWait) {
  options_.handlers.stream_synchronize = kRun2;
  options_.handlers.by_opcode[kRun2] = run;
  options_.handlers.stream_query = kEcho;
  options_.driver.cuEventSynchronize = [](void*) { return 0; };
  start();
  call(kHoldUntilOpen, Order::kStream, kStreamX);
  wait_early(kContext);
  ask(kContext, 2);
  stage_.event_state = 0;
  open();
  EXPECT_EQ(receive().header.result, 0);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "2", "record in 22", "3"));
}

// A copy's own lane asks behind it, and no other: ADR 16.
TEST_F(ExecutorTest, OtherLanesQuestionsPassACopyThatWasAnsweredEarly) {
  options_.handlers.stream_query = kEcho;
  start();
  call(kRun, Order::kStream, kStreamX, protocol::kFlagBarrier);
  const std::uint64_t question = ask(kContext, 2);
  EXPECT_EQ(receive().header.call_sequence, question);
}

TEST_F(ExecutorTest, EndsWithCallsStillQueued) {
  call(kHoldUntilOpen, Order::kStream, kStreamX);
  call(kRun, Order::kStream, kStreamX);
  executor_.reset();
  EXPECT_TRUE(stage_.said().empty());
}

TEST_F(ExecutorTest, TheWorkerServesAConnectionUntilTheGoodbye) {
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

}  // namespace
}  // namespace gpurun::server
