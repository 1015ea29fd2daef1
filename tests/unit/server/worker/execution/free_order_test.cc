// Free order: the worker's order behind a free that its client answered early (docs/adr/0038).
// Later calls of every stream, context and lane come after the earlier work of the free's context,
// on the device and in the queue. A free without earlier work costs nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "driver_abi/opcodes.h"
#include "server/worker/execution/thread_context.h"
#include "tests/unit/server/worker/execution/executor_under_test.h"

namespace gpurun::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FreeOrderTest : public ExecutorTest {
 protected:
  void SetUp() override {
    ExecutorTest::SetUp();
    queries = 0;
    options_.driver.cuStreamQuery = [](void*) {
      ++queries;
      return stage->event_state.load();
    };
    options_.driver.cuStreamCreate = [](void** stream, unsigned) {
      *stream = reinterpret_cast<void*>(std::uintptr_t{55});
      return 0;
    };
    options_.handlers.stream_query = kEcho;
    // The free itself runs on its own thread, and does not appear in the log.
    options_.handlers.by_opcode[kRun2] = [](Call&) { return CallOutcome::done(0); };
    start();
  }
  void TearDown() override {
    if (!stage_.open) open();
    executor_.reset();
  }
  // A free by lane 0.
  void free_early() { call(kRun2, Order::kOrderedHost, 0, protocol::kFlagBarrier); }

  // Once the capture begins, stream X captures, so queries of the legacy stream fail.
  void capture_x() {
    captures = false;
    options_.driver.cuStreamIsCapturing = [](void* stream, int* status) {
      const bool legacy = stream == nullptr;
      *status = captures && stream == reinterpret_cast<void*>(std::uintptr_t{22}) ? 1 : 0;
      return captures && legacy ? kErrorCaptureImplicit : 0;
    };
    options_.handlers.by_opcode[driver_abi::opcode::cuStreamBeginCapture_v2] = [](Call& each) {
      captures = true;
      return run(each);
    };
    start();
  }

  static constexpr int kErrorCaptureImplicit = 906;  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (cuda.h).
  static inline std::atomic<bool> captures{false};
  static inline std::atomic<int> queries{0};
};

TEST_F(FreeOrderTest, EveryStreamWaitsForStreamsThatHadWork) {
  call(kRun, Order::kStream, kStreamX);
  call(kRun, Order::kStream, kStreamY);
  free_early();
  call(kRun, Order::kStream);
  call(kRun, Order::kStream);
  call(kRun, Order::kStream, kStreamX);
  EXPECT_THAT(stage_.said(),
              ElementsAre("1", "2", "record in 22", "wait in 55", "record in 33", "wait in 55",
                          "record in 55", "wait in 0", "4", "5", "wait in 22", "6"));
}

TEST_F(FreeOrderTest, RecordsEventInSingleBusyStream) {
  call(kRun, Order::kStream, kStreamX);
  free_early();
  call(kRun, Order::kStream, kStreamY);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "record in 22", "wait in 33", "3"));
}

// Each barrier comes behind the one before, so streams wait only for the last one.
TEST_F(FreeOrderTest, FreeFollowsPreviousBarrier) {
  call(kRun, Order::kStream, kStreamX, protocol::kFlagBarrier);
  call(kRun, Order::kStream, kStreamY);
  free_early();
  EXPECT_THAT(stage_.said(),
              ElementsAre("1", "record in 22", "wait in 33", "2", "record in 22", "wait in 55",
                          "record in 33", "wait in 55", "wait in 55", "record in 55"));
}

TEST_F(FreeOrderTest, FreeWithoutPendingWorkAddsNoEvents) {
  stage_.event_state = 0;
  free_early();
  EXPECT_EQ(queries, 0);
  call(kRun, Order::kStream, kStreamX);
  free_early();
  EXPECT_EQ(queries, 1);
  free_early();
  EXPECT_EQ(queries, 1);
  EXPECT_THAT(stage_.said(), ElementsAre("2"));
}

// Our event would change the program's graph.
TEST_F(FreeOrderTest, FreeSkipsCapturingStreams) {
  note_capture();
  stage_.capturing = 1;
  call(kRun, Order::kStream, kStreamX);
  free_early();
  call(kRun, Order::kStream, kStreamY);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "3"));
  EXPECT_EQ(queries, 0);
}

// Work from before the capture is not part of it.
TEST_F(FreeOrderTest, FreeOrdersWorkBeforeCapture) {
  capture_x();
  call(kRun, Order::kStream, kStreamX);
  call(driver_abi::opcode::cuStreamBeginCapture_v2, Order::kStream, kStreamX);
  call(kRun, Order::kStream, kStreamX);
  free_early();
  call(kRun, Order::kStream, kStreamY);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "record in 22", "wait in 55", "2", "3",
                                         "record in 55", "wait in 33", "5"));
}

// While a blocking stream captures, the legacy stream cannot be queried.
TEST_F(FreeOrderTest, FreeOrdersLegacyWorkBeforeCapture) {
  options_.driver.cuStreamGetFlags = [](void*, unsigned* flags) {
    *flags = 0;
    return 0;
  };
  capture_x();
  call(kRun, Order::kStream);
  call(driver_abi::opcode::cuStreamBeginCapture_v2, Order::kStream, kStreamX);
  free_early();
  call(kRun, Order::kStream, kStreamY);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "record in 0", "wait in 55", "2", "record in 55",
                                         "wait in 33", "4"));
}

TEST_F(FreeOrderTest, CaptureWithoutPendingWorkAddsNoEvents) {
  capture_x();
  stage_.event_state = 0;
  call(kRun, Order::kStream, kStreamX);
  call(driver_abi::opcode::cuStreamBeginCapture_v2, Order::kStream, kStreamX);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "2"));
}

// An ended stream can be neither queried nor recorded, but its work goes on.
TEST_F(FreeOrderTest, FreeOrdersWorkOfDestroyedStream) {
  options_.handlers.by_opcode[driver_abi::opcode::cuStreamDestroy_v2] = run;
  start();
  call(kRun, Order::kStream, kStreamX);
  call(driver_abi::opcode::cuStreamDestroy_v2, Order::kStream, kStreamX);
  free_early();
  call(kRun, Order::kStream, kStreamY);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "record in 22", "wait in 55", "2", "record in 55",
                                         "wait in 33", "4"));
}

// Work that is queued before the free has no event yet.
TEST_F(FreeOrderTest, CallsDoNotPassFreeBehindQueuedWork) {
  call(kHoldUntilOpen, Order::kStream, kStreamX);
  free_early();
  const std::uint64_t after = call(kRun, Order::kStream, kStreamY, protocol::kFlagFence);
  EXPECT_THAT(stage_.said(), IsEmpty());
  open();
  EXPECT_EQ(receive().header.call_sequence, after);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "record in 22", "wait in 33", "3"));
}

// No call waits until the free has returned, which takes as long as the work.
TEST_F(FreeOrderTest, UnfinishedFreeDoesNotDelayStreams) {
  call(kRun, Order::kStream, kStreamX);
  call(kBlockOnGate, Order::kOrderedHost, 0, protocol::kFlagBarrier);
  free_early();
  const std::uint64_t after = call(kRun, Order::kStream, kStreamY, protocol::kFlagFence);
  EXPECT_EQ(receive().header.call_sequence, after);
}

// The thread that freed may have told the others.
TEST_F(FreeOrderTest, QueryFromAnyLaneOfContextFollowsFree) {
  options_.driver.cuEventSynchronize = [](void* event) {
    stage->say("waits for " + name(event));
    return stage->opened.wait_for(kWait) == std::future_status::ready ? 0 : kErrorUnknown;
  };
  start();
  call(kRun, Order::kStream, kStreamX);
  free_early();
  const std::uint64_t elsewhere = ask(kOtherContext, 2);
  EXPECT_EQ(receive().header.call_sequence, elsewhere);
  const std::uint64_t question = ask(kContext, 2);
  open();
  EXPECT_EQ(receive().header.call_sequence, question);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "record in 22", "3", "waits for 77", "4"));
}

// While a context captures, there would be no other way to wait for it.
TEST_F(FreeOrderTest, AwaitedFreeRepliesAfterItsMark) {
  options_.driver.cuEventSynchronize = [](void* event) {
    stage->say("waits for " + name(event));
    return stage->opened.wait_for(kWait) == std::future_status::ready ? 0 : kErrorUnknown;
  };
  start();
  call(kRun, Order::kStream, kStreamX);
  const std::uint64_t free =
      call(kRun2, Order::kOrderedHost, 0, protocol::kFlagBarrier | protocol::kFlagFence);
  open();
  EXPECT_EQ(receive().header.call_sequence, free);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "record in 22", "waits for 77"));
}

TEST_F(FreeOrderTest, QueryFollowsQueuedFree) {
  options_.driver.cuEventSynchronize = [](void*) { return 0; };
  start();
  call(kHoldUntilOpen, Order::kStream, kStreamX);
  free_early();
  ask(kContext, 2);
  EXPECT_THAT(stage_.said(), IsEmpty());
  open();
  EXPECT_EQ(receive().header.result, 0);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "record in 22", "3"));
}

// After a free a program may unload or unmap what earlier work uses.
TEST_F(FreeOrderTest, EndingCallFollowsFree) {
  options_.handlers.ends.set(kEcho);
  options_.driver.cuEventSynchronize = [](void*) {
    (void)stage->opened.wait_for(kWait);
    stage->say("waited");
    return 0;
  };
  start();
  call(kRun, Order::kStream, kStreamX);
  free_early();
  const std::uint64_t ends = call(kEcho, Order::kContext, 0, protocol::kFlagFence);
  open();
  EXPECT_EQ(receive().header.call_sequence, ends);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "record in 22", "waited", "3"));
}

// A free that only waits runs in the issuing thread once its context has no work.
class FreeThreadTest : public FreeOrderTest {
 protected:
  void SetUp() override {
    FreeOrderTest::SetUp();
    options_.handlers.memory_free = kRun2;
    options_.handlers.only_waits = [](const Call&) { return only_waits.load(); };
    options_.handlers.by_opcode[kRun2] = [](Call&) {
      ran_in.set_value(std::this_thread::get_id());
      return CallOutcome::done(0);
    };
    only_waits = true;
    start();
  }
  // The thread in which a free by lane 0 runs.
  std::thread::id free_runs_in(std::uint16_t flags = protocol::kFlagBarrier) {
    ran_in = {};
    std::future<std::thread::id> done = ran_in.get_future();
    call(kRun2, Order::kOrderedHost, 0, flags);
    EXPECT_EQ(done.wait_for(kWait), std::future_status::ready);
    return done.get();
  }

  static inline std::promise<std::thread::id> ran_in;
  static inline std::atomic<bool> only_waits{true};
};

TEST_F(FreeThreadTest, FreeBehindCompleteWorkNeedsNoHelper) {
  stage_.event_state = 0;
  for (int time = 0; time < 3; ++time) {
    call(kRun, Order::kStream, kStreamX);
    EXPECT_EQ(free_runs_in(), std::this_thread::get_id());
    EXPECT_EQ(free_runs_in(), std::this_thread::get_id());
  }
  // At most one query for each stream with work and one for the null stream.
  EXPECT_LE(queries, 3 * 4);
}

TEST_F(FreeThreadTest, FreeBehindUnfinishedWorkWaitsOnHelper) {
  call(kRun, Order::kStream, kStreamX);
  EXPECT_NE(free_runs_in(), std::this_thread::get_id());
}

TEST_F(FreeThreadTest, FreeThatDoesMoreRunsOnHelper) {
  stage_.event_state = 0;
  only_waits = false;
  EXPECT_NE(free_runs_in(), std::this_thread::get_id());
  only_waits = true;
  EXPECT_NE(free_runs_in(protocol::kFlagBarrier | protocol::kFlagFence),
            std::this_thread::get_id());
}

// The worker does not know then which streams the context has to wait for.
TEST_F(FreeThreadTest, FreeInContextOfUnknownStateRunsOnHelper) {
  stage_.event_state = 0;
  for (std::uint64_t index = 10; index < 16; ++index) {
    const std::uint64_t stream = handle(HandleKind::kStream, index);
    ASSERT_EQ(executor_->handles().bind(stream, HandleKind::kStream, 40 + index), 0);
    call(kRun, Order::kStream, stream);
  }
  EXPECT_NE(free_runs_in(0), std::this_thread::get_id());
}

}  // namespace
}  // namespace gpurun::server
