// Early waits: the worker's order behind a wait or a copy that its client answered early
// (docs/adr/0033, 0036). Nothing starts, is reported complete or ends that could show the program
// that it had not waited. Other lanes do not wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <set>

#include "tests/unit/server/worker/execution/executor_under_test.h"

namespace gpurun::server {
namespace {

using ::testing::ElementsAre;

// Creates the worker's own stream, for barriers behind events.
int create_side(void** stream, unsigned flags) {
  EXPECT_EQ(flags, 1U);  // CU_STREAM_NON_BLOCKING (cuda.h).
  *stream = reinterpret_cast<void*>(std::uintptr_t{55});
  return 0;
}

// An event that completes once the test calls open().
int wait_until_open(void*) {
  (void)stage->opened.wait_for(kWait);
  stage->say("waited");
  return 0;
}

// A wait for a stream that was answered early (docs/adr/0033). A later query from any lane finds it
// over, because the answered thread may have told the other. It is asked only once: later early
// waits may record the event again, so the query might never end.
TEST_F(ExecutorTest, QueryFromAnyLaneChecksEarlyWaitOnce) {
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
  open();  // The barrier's event never completes, because a later early wait may have recorded it
           // again.
  EXPECT_EQ(receive().header.call_sequence, question);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "record in 22", "2", "waits for 77", "3"));
}

// Also behind work that was answered early and has not been issued.
TEST_F(ExecutorTest, QueryFromAnyLaneFollowsQueuedEarlyWait) {
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

// Only the copy's own lane waits behind the copy: ADR 16.
TEST_F(ExecutorTest, QueryFromOtherLanePassesEarlyAnsweredCopy) {
  options_.handlers.stream_query = kEcho;
  start();
  call(kRun, Order::kStream, kStreamX, protocol::kFlagBarrier);
  const std::uint64_t question = ask(kContext, 2);
  EXPECT_EQ(receive().header.call_sequence, question);
}

// The same for a wait for an event. Its upload may be behind another context's work, and a thread
// that learned of the wait may query that work.
TEST_F(ExecutorTest, EarlyEventWaitOrdersQueriesOfAllContexts) {
  options_.handlers.event_synchronize = kRun2;
  options_.driver.cuStreamCreate = create_side;
  options_.handlers.by_opcode[kRun2] = run;
  options_.handlers.stream_query = kEcho;
  options_.driver.cuEventSynchronize = [](void* event) {
    stage->say("waits for " + name(event));
    return 0;
  };
  start();
  wait_early(kContext);
  call(kRun, Order::kStream, kStreamY);
  const std::uint64_t question = ask(kOtherContext, 2);
  EXPECT_EQ(receive().header.call_sequence, question);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "wait in 55", "record in 55", "wait in 33", "2",
                                         "waits for 77", "3"));
}

// The earlier barrier is not lost behind a later one, because each comes behind the one before.
TEST_F(ExecutorTest, EarlyWaitFollowsPreviousBarrier) {
  options_.handlers.event_synchronize = kRun2;
  options_.driver.cuStreamCreate = create_side;
  options_.handlers.by_opcode[kRun2] = run;
  start();
  call(kRun, Order::kStream, kStreamY, protocol::kFlagBarrier);
  wait_early(kContext);
  EXPECT_THAT(stage_.said(),
              ElementsAre("1", "record in 33", "2", "wait in 55", "wait in 55", "record in 55"));
}

// A wait for an event does not name the stream, which another thread may have ended.
TEST_F(ExecutorTest, EarlyEventWaitDoesNotNeedItsStream) {
  options_.handlers.event_synchronize = kRun2;
  options_.driver.cuStreamCreate = create_side;
  options_.handlers.by_opcode[kRun2] = run;
  start();
  executor_->handles().erase(kStreamX, HandleKind::kStream);
  wait_early(kContext);
  call(kRun, Order::kStream, kStreamY, kFence);
  EXPECT_EQ(receive().header.result, 0);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "wait in 55", "record in 55", "wait in 33", "2"));
}

// No context ends while helpers wait for events.
TEST_F(ExecutorTest, ContextDestroyWaitsForHelpers) {
  options_.handlers.event_synchronize = kRun2;
  options_.driver.cuStreamCreate = create_side;
  options_.handlers.by_opcode[kRun2] = run;
  options_.handlers.stream_query = kEcho;
  options_.handlers.context_destroy = kWaitForGate;
  options_.handlers.by_opcode[kWaitForGate] = run;
  options_.driver.cuEventSynchronize = wait_until_open;
  start();
  wait_early(kContext);
  const std::uint64_t question = ask(kContext, 2);
  const std::uint64_t end = call(kWaitForGate, Order::kContext, 0, kFence);
  const std::uint64_t other = call(kRun, Order::kContext, 0, kFence);
  EXPECT_EQ(receive().header.call_sequence, other);
  open();
  std::set<std::uint64_t> answered = {receive().header.call_sequence,
                                      receive().header.call_sequence};
  EXPECT_EQ(answered, (std::set<std::uint64_t>{question, end}));
  EXPECT_THAT(stage_.said(), ElementsAre("1", "wait in 55", "record in 55", "4", "waited",
                                         ::testing::_, ::testing::_));
}

// A call that ends something which the work may need: waited for, or on a separate thread. Other
// calls of the context do not wait for it.
TEST_F(ExecutorTest, EndingCallWaitsForEarlyWait) {
  options_.handlers.stream_synchronize = kRun2;
  options_.handlers.by_opcode[kRun2] = run;
  options_.handlers.ends.set(kEcho);
  options_.driver.cuEventSynchronize = wait_until_open;
  start();
  const std::uint64_t unhindered = call(kEcho, Order::kContext, 0, kFence);
  EXPECT_EQ(receive().header.call_sequence, unhindered);
  wait_early(kOtherContext);  // In any context.
  const std::uint64_t ends = call(kEcho, Order::kContext, 0, kFence);
  const std::uint64_t other = call(kRun, Order::kContext, 0, kFence);
  EXPECT_EQ(receive().header.call_sequence, other);
  open();
  EXPECT_EQ(receive().header.call_sequence, ends);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "2", "record in 22", "4", "waited", "3"));
}

TEST_F(ExecutorTest, OrderedEndingCallWaitsForEarlyWait) {
  options_.handlers.stream_synchronize = kRun2;
  options_.handlers.by_opcode[kRun2] = run;
  options_.handlers.ends.set(kEcho);
  std::promise<void> ended;
  static std::promise<void>* now;
  now = &ended;
  options_.handlers.by_opcode[kEcho] = [](Call& call) {
    say(call);
    now->set_value();
    return CallOutcome::done(0);
  };
  options_.driver.cuEventSynchronize = wait_until_open;
  start();
  wait_early(kContext);
  call(kEcho, Order::kOrderedHost);
  const std::uint64_t other = call(kRun, Order::kStream, kStreamX, kFence);
  EXPECT_EQ(receive().header.call_sequence, other);
  open();
  ASSERT_EQ(ended.get_future().wait_for(kWait), std::future_status::ready);
  EXPECT_THAT(stage_.said(), ElementsAre("1", "record in 22", "3", "waited", "2"));
}

// An ending call does not wait for a wait that was made after it.
TEST_F(ExecutorTest, EndingCallDoesNotWaitForLaterEarlyWait) {
  options_.handlers.stream_synchronize = kRun2;
  options_.handlers.by_opcode[kRun2] = run;
  options_.handlers.ends.set(kEcho);
  start();
  call(kHoldUntilOpen, Order::kStream, kStreamY);
  const std::uint64_t ends = call(kEcho, Order::kContext, 0, kFence);  // Behind the held call.
  wait_early(kContext);
  open();
  EXPECT_EQ(receive().header.call_sequence, ends);
}

}  // namespace
}  // namespace gpurun::server
