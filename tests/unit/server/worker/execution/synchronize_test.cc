// Waits and queries on the worker: a wait delays no other call. A completed event is reported
// before the client asks again. The output of kernels arrives before the reply that lets the
// program go on.
#include "server/worker/execution/synchronize.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "driver_abi/row.h"
#include "protocol/calls/handle_form.h"
#include "server/worker/execution/executor.h"
#include "server/worker/execution/skipped_waits.h"
#include "tests/unit/server/worker/channels/raw_client.h"

namespace gpurun::server {
namespace {

using protocol::Form;
using protocol::Order;
using protocol::RecordHeader;
using protocol::ReplyKind;

constexpr std::uint16_t kFence = protocol::kFlagFence;
// Calls of the test's own.
constexpr std::uint16_t kMakeEvent = 4000;
constexpr std::uint16_t kPrint = 4001;
constexpr std::uint64_t kEvent =
    protocol::kHandleTag << protocol::kHandleTagShift |
    static_cast<std::uint64_t>(HandleKind::kEvent) << protocol::kHandleKindShift | 5;

WorkerOptions with_handlers() {
  WorkerOptions options;
  add_synchronize_handlers(options.handlers);
  options.handlers.by_opcode[kMakeEvent] = [](Call& call) {
    void* event = nullptr;
    EXPECT_EQ(call.driver().cuEventCreate(&event, 0), 0);
    return CallOutcome::done(call.handles().bind(call.header().subject, HandleKind::kEvent,
                                                 reinterpret_cast<std::uintptr_t>(event)));
  };
  options.handlers.by_opcode[kPrint] = [](Call&) {
    std::printf("seven %d", 7);  // Without a newline, because it must not stay in a buffer.
    return CallOutcome::done(0);
  };
  return options;
}

class Synchronize : public ::testing::Test {
 protected:
  explicit Synchronize(const WorkerOptions& options = with_handlers()) : client_(options) {}

  std::uint64_t ask(const char* symbol, Order order, std::uint64_t subject, std::uint32_t lane) {
    return raw(driver_abi::find_row(symbol)->opcode, order, subject, lane);
  }
  std::uint64_t raw(std::uint16_t opcode, Order order, std::uint64_t subject, std::uint32_t lane) {
    RecordHeader header;
    header.opcode = opcode;
    header.form = Form::kRaw;
    header.order = order;
    header.flags = kFence;
    header.subject = subject;
    return client_.record(header, {}, lane);
  }
  std::uint64_t record_event(std::uint32_t lane, std::uint16_t flags = 0) {
    RecordHeader header;
    header.form = Form::kEventRecord;
    header.flags = static_cast<std::uint16_t>(protocol::kFlagWritesSubject | flags);
    header.subject = kEvent;
    return client_.record(header, bytes_of(protocol::EventPayload{}), lane);
  }
  void make_event() {
    raw(kMakeEvent, Order::kImmediate, kEvent, 0);
    EXPECT_EQ(client_.item().header.result, 0);
  }
  StepDevice& device() { return StepDevice::device(); }

  RawClient client_;
  std::byte memory_{};
};

// A device that is done after `questions_left` queries. It notes the thread that waited for it.
struct BriefDevice {
  static inline std::atomic<int> questions_left;
  static inline std::atomic<std::thread::id> waited, decoder;

  static int query(void*) { return questions_left.fetch_sub(1) > 0 ? kErrorNotReady : 0; }
  static int wait() {
    waited = std::this_thread::get_id();
    return 0;
  }
  static WorkerOptions options(std::chrono::microseconds spin = BriefSpin::kSpan) {
    WorkerOptions options = with_handlers();
    options.spin = spin;
    options.driver = StepDevice::functions();
    options.driver.cuStreamQuery = &query;
    options.driver.cuEventQuery = &query;
    options.driver.cuStreamSynchronize = [](void*) { return wait(); };
    options.driver.cuEventSynchronize = [](void*) { return wait(); };
    options.driver.cuCtxSynchronize = &wait;
    options.handlers.by_opcode[kPrint] = [](Call& call) {
      decoder = std::this_thread::get_id();
      call.executor().skipped_waits().forbid();  // As the load of code that prints does.
      return CallOutcome::done(0);
    };
    return options;
  }
};

class BriefWaits : public Synchronize {
 protected:
  explicit BriefWaits(std::chrono::microseconds spin = BriefSpin::kSpan)
      : Synchronize(BriefDevice::options(spin)) {
    raw(kPrint, Order::kImmediate, 0, 0);
    client_.item();
  }
  // The thread that waited, on a device that is done after that number of queries.
  std::thread::id waited(const char* symbol, Order order, std::uint64_t subject, int questions) {
    BriefDevice::questions_left = questions;
    BriefDevice::waited = std::thread::id();
    ask(symbol, order, subject, 1);
    EXPECT_EQ(client_.item().header.result, 0);
    BriefDevice::questions_left = 0;
    return BriefDevice::waited;
  }
};

// Waking a helper takes as long as the device's work here. (The device is done at the second look,
// so that the thread does not give up the processor.)
TEST_F(BriefWaits, DecoderWaitsWithoutHelper) {
  make_event();
  const std::thread::id decoder = BriefDevice::decoder;
  EXPECT_EQ(waited("cuStreamSynchronize", Order::kStream, 0, 1), decoder);
  EXPECT_EQ(waited("cuEventSynchronize", Order::kLane, kEvent, 1), decoder);
  EXPECT_EQ(waited("cuCtxSynchronize", Order::kLane, 0, 0), decoder);
}

// With many streams the worker cannot tell whether this context is done, until a wait for it.
TEST_F(BriefWaits, FirstWaitAfterStreamBurstUsesHelper) {
  for (std::uint32_t lane = 10; lane < 15; ++lane) client_.fill(&memory_, 3, 1, 0, lane);
  const std::thread::id decoder = BriefDevice::decoder;
  EXPECT_NE(waited("cuCtxSynchronize", Order::kLane, 0, 0), decoder);
  EXPECT_EQ(waited("cuCtxSynchronize", Order::kLane, 0, 0), decoder);
}

// The operator has turned polls off. The worker looks once or twice, for other reasons.
class WaitsWithoutPolls : public BriefWaits {
 protected:
  WaitsWithoutPolls() : BriefWaits(std::chrono::microseconds(0)) {}
};

TEST_F(WaitsWithoutPolls, DeviceThatIsNotDoneNeedsHelper) {
  const std::thread::id decoder = BriefDevice::decoder;
  EXPECT_EQ(waited("cuStreamSynchronize", Order::kStream, 0, 0), decoder);
  EXPECT_NE(waited("cuStreamSynchronize", Order::kStream, 0, 5), decoder);
}

TEST_F(BriefWaits, LongWaitsUseHelper) {
  constexpr int kForEver = 1 << 30;
  const std::thread::id decoder = BriefDevice::decoder;
  EXPECT_NE(waited("cuStreamSynchronize", Order::kStream, 0, kForEver), decoder);
  EXPECT_NE(waited("cuCtxSynchronize", Order::kLane, 0, kForEver), decoder);
}

// A device that is always done, and counts the calls of the driver.
struct CountedDevice {
  static inline std::atomic<int> fills, queries, waits, captures_asked, contexts_set;
  static inline std::atomic<int> state;  // The result of queries.

  static int all() { return fills + queries + waits + captures_asked + contexts_set; }
  static WorkerOptions options() {
    for (std::atomic<int>* each : {&fills, &queries, &waits, &captures_asked, &contexts_set}) {
      *each = 0;
    }
    state = 0;
    WorkerOptions options = with_handlers();
    options.driver = StepDevice::functions();
    options.driver.cuCtxSetCurrent = [](void*) { return 0 * ++contexts_set; };
    options.driver.cuMemsetD8Async = [](std::uint64_t, unsigned char, std::size_t, void*) {
      return 0 * ++fills;
    };
    options.driver.cuStreamIsCapturing = [](void*, int* status) {
      *status = 0;
      return 0 * ++captures_asked;
    };
    options.driver.cuStreamQuery = [](void*) { return ++queries, state.load(); };
    options.driver.cuEventQuery = [](void*) { return ++queries, state.load(); };
    options.driver.cuStreamSynchronize = [](void*) { return 0 * ++waits; };
    options.driver.cuEventSynchronize = [](void*) { return 0 * ++waits; };
    options.driver.cuCtxSynchronize = []() { return 0 * ++waits; };
    options.handlers.generic = [](Call&) { return CallOutcome::done(0); };
    options.handlers.by_opcode[kPrint] = [](Call& call) {
      call.executor().skipped_waits().forbid();
      return CallOutcome::done(0);
    };
    return options;
  }
};

class CountedWaits : public Synchronize {
 protected:
  CountedWaits() : Synchronize(CountedDevice::options()) {
    round("cuStreamSynchronize", Order::kStream);  // The context becomes current.
  }
  // The calls of the driver for a fill and a wait for it.
  int round(const char* symbol, Order order) {
    const int before = CountedDevice::all();
    client_.fill(&memory_, 3, 1, 0, 1);
    ask(symbol, order, 0, 1);
    EXPECT_EQ(client_.item().header.result, CountedDevice::state);
    return CountedDevice::all() - before;
  }
};

TEST_F(CountedWaits, WaitForCompleteStreamIsOneQuery) {
  for (int time = 0; time < 3; ++time) {
    EXPECT_EQ(round("cuStreamSynchronize", Order::kStream), 2);
  }
  EXPECT_EQ(CountedDevice::waits, 0);
  EXPECT_EQ(CountedDevice::captures_asked, 0);
}

TEST_F(CountedWaits, WaitReleasesOutputOnceCodeMayPrint) {
  raw(kPrint, Order::kImmediate, 0, 0);
  EXPECT_EQ(client_.item().header.result, 0);
  round("cuStreamSynchronize", Order::kStream);
  EXPECT_EQ(round("cuStreamSynchronize", Order::kStream), 3);
  EXPECT_EQ(CountedDevice::waits, 2);
}

// The wait lets the pool return memory.
TEST_F(CountedWaits, WaitReachesDriverOncePoolIsUsed) {
  raw(driver_abi::find_row("cuMemAllocAsync")->opcode, Order::kImmediate, 0, 0);
  client_.item();
  round("cuStreamSynchronize", Order::kStream);
  EXPECT_EQ(CountedDevice::waits, 1);
}

TEST_F(CountedWaits, WaitForContextQueriesItsStreams) {
  // The stream, the null stream, and the wait.
  EXPECT_EQ(round("cuCtxSynchronize", Order::kLane), 4);
  EXPECT_EQ(CountedDevice::captures_asked, 0);
}

TEST_F(CountedWaits, WaitReturnsFailureOfQuery) {
  CountedDevice::state = 700;  // CUDA_ERROR_ILLEGAL_ADDRESS.
  EXPECT_EQ(round("cuStreamSynchronize", Order::kStream), 2);
}

TEST_F(Synchronize, StreamWaitDelaysNoOtherCall) {
  client_.fill(&memory_, 3, 1, 0, 1);
  const std::uint64_t query = ask("cuStreamQuery", Order::kStream, 0, 1);
  RawClient::Item item = client_.item();
  EXPECT_EQ(item.header.call_sequence, query);
  EXPECT_EQ(item.header.result, kErrorNotReady);
  const std::uint64_t wait = ask("cuStreamSynchronize", Order::kStream, 0, 1);
  const std::uint64_t other = ask("cuStreamSynchronize", Order::kStream, 0, 2);
  EXPECT_EQ(client_.item().header.call_sequence, other);
  device().run(1);
  item = client_.item();
  EXPECT_EQ(item.header.call_sequence, wait);
  EXPECT_EQ(item.header.result, 0);
  EXPECT_EQ(memory_, std::byte{3});
}

TEST_F(Synchronize, ReportsCompletedEventBeforeReply) {
  make_event();
  const std::uint64_t record = record_event(1);
  ask("cuEventQuery", Order::kLane, kEvent, 1);
  EXPECT_EQ(client_.item().header.result, kErrorNotReady);
  device().run(1);
  ask("cuEventSynchronize", Order::kLane, kEvent, 1);
  const RawClient::Item told = client_.item();
  EXPECT_EQ(told.header.kind, ReplyKind::kEventDone);
  EXPECT_EQ(told.header.subject, kEvent);
  EXPECT_EQ(told.header.call_sequence, record);
  EXPECT_EQ(client_.item().header.kind, ReplyKind::kReply);
}

TEST_F(Synchronize, PushesOnlyRecordsWithTellFlag) {
  make_event();
  record_event(1);  // Only streams wait for this one.
  const std::uint64_t first = record_event(1, protocol::kFlagTell);
  const std::uint64_t second = record_event(1, protocol::kFlagTell);
  ask("cuStreamQuery", Order::kStream, 0, 1);
  EXPECT_EQ(client_.item().header.result, kErrorNotReady);
  device().run(1);
  for (const std::uint64_t record : {first, second}) {
    const RawClient::Item told = client_.item();
    EXPECT_EQ(told.header.kind, ReplyKind::kEventDone);
    EXPECT_EQ(told.header.call_sequence, record);
    EXPECT_EQ(told.header.result, 0);
  }
}

TEST_F(Synchronize, PushesRecordThatNoCallFollows) {
  make_event();
  const std::uint64_t record = record_event(1, protocol::kFlagTell);
  // The program's event and the worker's.
  while (device().queued(1) < 2) std::this_thread::yield();
  device().run(1);
  const RawClient::Item told = client_.item();
  EXPECT_EQ(told.header.kind, ReplyKind::kEventDone);
  EXPECT_EQ(told.header.call_sequence, record);
}

TEST_F(Synchronize, FailedRecordPushesEventWithError) {
  const std::uint64_t record = record_event(1, protocol::kFlagTell);  // The event does not exist.
  const RawClient::Item told = client_.item();
  EXPECT_EQ(told.header.kind, ReplyKind::kEventDone);
  EXPECT_EQ(told.header.call_sequence, record);
  EXPECT_EQ(told.header.result, kErrorInvalidHandle);
  EXPECT_EQ(client_.item().header.kind, ReplyKind::kCallError);
}

TEST_F(Synchronize, DeviceFaultPushesEventWithError) {
  constexpr int kIllegalAddress = 700;
  make_event();
  const std::uint64_t record = record_event(1, protocol::kFlagTell);
  ask("cuStreamQuery", Order::kStream, 0, 1);
  EXPECT_EQ(client_.item().header.result, kErrorNotReady);
  device().fail(kIllegalAddress);
  RawClient::Item told = client_.item();
  EXPECT_EQ(told.header.kind, ReplyKind::kCallError);
  EXPECT_EQ(told.header.flags, protocol::kReplyFlagSticky);
  told = client_.item();
  EXPECT_EQ(told.header.kind, ReplyKind::kEventDone);
  EXPECT_EQ(told.header.call_sequence, record);
  EXPECT_EQ(told.header.result, kIllegalAddress);
}

// A client without this feature would end the session at an unknown kind of item.
class UnpushedCompletions : public Synchronize {
 protected:
  UnpushedCompletions() : Synchronize(options()) {}
  static WorkerOptions options() {
    WorkerOptions options = with_handlers();
    options.features &= ~protocol::feature_bit(protocol::Feature::kPushedCompletions);
    return options;
  }
};

TEST_F(UnpushedCompletions, SendsOnlyReplies) {
  make_event();
  record_event(1);
  ask("cuEventQuery", Order::kLane, kEvent, 1);
  EXPECT_EQ(client_.item().header.result, kErrorNotReady);
  record_event(1);
  ask("cuStreamQuery", Order::kStream, 0, 1);  // The device then has the record.
  EXPECT_EQ(client_.item().header.result, kErrorNotReady);
  device().run(1);
  const std::uint64_t wait = ask("cuEventSynchronize", Order::kLane, kEvent, 1);
  const RawClient::Item answer = client_.item();
  EXPECT_EQ(answer.header.kind, ReplyKind::kReply);
  EXPECT_EQ(answer.header.call_sequence, wait);
}

TEST_F(Synchronize, WaitWithoutFenceReturnsInvalidValue) {
  RecordHeader header;
  header.opcode = driver_abi::find_row("cuCtxSynchronize")->opcode;
  header.form = Form::kRaw;
  client_.record(header, {});
  const RawClient::Item item = client_.item();
  EXPECT_EQ(item.header.kind, ReplyKind::kCallError);
  EXPECT_EQ(item.header.result, kErrorInvalidValue);
}

TEST(WorkerOutput, PrintedTextPrecedesReply) {
  WorkerOptions options = with_handlers();
  options.capture_stdout = true;
  std::string text;
  {
    RawClient client(options);
    RecordHeader header;
    header.opcode = kPrint;
    header.form = Form::kRaw;
    header.flags = kFence;
    client.record(header, {});
    for (;;) {
      const RawClient::Item item = client.item();
      if (item.header.kind != ReplyKind::kOutput) break;
      text.append(reinterpret_cast<const char*>(item.payload.data()), item.payload.size());
    }
  }
  EXPECT_EQ(text, "seven 7");
}

}  // namespace
}  // namespace gpurun::server
