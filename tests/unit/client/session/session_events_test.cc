// Unasked completions: the worker reports the completion of events unasked. A wait for such an
// event sends nothing, and ends with the report, with its context or with the session.
#include "client/early_answers/event_completions.h"

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "client/bulk/bulk.h"
#include "client/session/graph_host.h"
#include "driver_abi/opcodes.h"
#include "tests/unit/client/session/session_under_test.h"

namespace gpurun::client {
namespace {

// One event, and the worker's reports of it.
class SessionEvents : public ::testing::Test {
 protected:
  // Records the event. Returns the record that the worker gets.
  FakeWorker::Record record() {
    CallSite here = about(4);
    here.form = protocol::Form::kEventRecord;
    here.order = protocol::Order::kStream;
    if (session_->event_wanted(event_)) here.flags |= protocol::kFlagTell;
    const protocol::EventPayload payload;
    EXPECT_EQ(session_->post(*Lane::current(), here, bytes_of(payload)), 0);
    return worker_.next();
  }
  CallSite about(std::uint16_t opcode) {
    CallSite here = site(opcode);
    here.subject = event_;
    return here;
  }
  bool answered(bool wait, int* result) {
    return session_->event_answered(*Lane::current(), about(5), wait, result);
  }
  // Asks without waiting. The answer must be 0 or that it is not complete.
  bool known_complete() {
    int result = -1;
    const bool known = answered(false, &result);
    if (known && result == kResultNotReady) return false;
    EXPECT_EQ(result, 0);
    return known;
  }
  std::future<int> wait_elsewhere() {
    return std::async(std::launch::async, [this] {
      int result = -1;
      return answered(true, &result) ? result : -1;
    });
  }
  void tell(const FakeWorker::Record& record, int result = 0, std::uint64_t watermark = 0) {
    protocol::ReplyHeader header;
    header.kind = protocol::ReplyKind::kEventDone;
    header.subject = event_;
    header.result = result;
    header.call_sequence = record.header.sequence;
    header.watermark = watermark;
    worker_.send_item(header);
  }
  // Returns after all reports so far were handled.
  void settle(int expected = 0) {
    auto fence = call_elsewhere(*session_, site(3));
    worker_.reply(worker_.next());
    EXPECT_EQ(fence.get().returned, expected);
  }

  FakeWorker worker_;
  std::unique_ptr<Session> session_ = start(worker_);
  const Handle event_ = session_->handles().mint(HandleKind::kEvent, 0, nullptr);
};

TEST_F(SessionEvents, UnrecordedEventIsComplete) { EXPECT_TRUE(known_complete()); }

TEST_F(SessionEvents, StopsRequestingReportsOfUnqueriedEvent) {
  for (unsigned i = 0; i < EventCompletions::kUnaskedRecords; ++i) {
    EXPECT_NE(record().header.flags & protocol::kFlagTell, 0);
  }
  EXPECT_EQ(record().header.flags & protocol::kFlagTell, 0);
  EXPECT_FALSE(known_complete());  // This query reaches the worker.
  EXPECT_NE(record().header.flags & protocol::kFlagTell, 0);
}

// A program that uses events only between streams does not pay for the reports of polled events.
TEST(EventCompletionsTest, StopsReportsOfNewEventsWhenMostAreUnqueried) {
  std::uint64_t call = 0;
  Handle event = 0;
  EventCompletions events;
  for (std::size_t i = 0; i < EventCompletions::kUnaskedEvents; ++i) {
    EXPECT_TRUE(events.wanted(++event));
    for (unsigned j = 0; j < EventCompletions::kUnaskedRecords; ++j) {
      events.recorded(event, ++call, true);
    }
  }
  EXPECT_FALSE(events.wanted(event + 1));
  events.asked(event);
  EXPECT_TRUE(events.wanted(event));
  EXPECT_TRUE(events.wanted(event + 1));
}

TEST_F(SessionEvents, EventIsCompleteOnlyAfterItsLastRecord) {
  const FakeWorker::Record untold = record();
  EXPECT_FALSE(known_complete());
  const FakeWorker::Record first = record();
  const FakeWorker::Record second = record();
  tell(untold);
  tell(first);
  settle();
  EXPECT_FALSE(known_complete());
  tell(second);
  settle();
  EXPECT_TRUE(known_complete());
  tell(first);  // Any time later.
  settle();
  EXPECT_TRUE(known_complete());
  record();
  EXPECT_FALSE(known_complete());
}

TEST_F(SessionEvents, WaitSendsNothingAndReturnsOnReport) {
  EXPECT_TRUE(known_complete());
  const FakeWorker::Record first = record();
  ASSERT_EQ(session_->post(*Lane::current(), site(2), ByteView()), 0);
  worker_.next();
  auto wait = wait_elsewhere();
  tell(first);
  EXPECT_EQ(wait.get(), 0);
  settle();  // Its call is the next one at the worker. next() would have returned any other.
}

TEST_F(SessionEvents, EventIsNotCompleteBeforeItsBytesArrive) {
  EXPECT_TRUE(known_complete());
  tell(record(), 0, /*watermark=*/1);
  settle();
  EXPECT_FALSE(known_complete());
}

TEST_F(SessionEvents, WaitForUnreportedRecordAsksWorker) {
  EXPECT_TRUE(known_complete());
  const FakeWorker::Record captured = record();
  auto wait = wait_elsewhere();
  tell(captured, 900);
  EXPECT_EQ(wait.get(), -1);
  EXPECT_FALSE(known_complete());
}

TEST_F(SessionEvents, LostContextEndsWait) {
  EXPECT_TRUE(known_complete());
  const FakeWorker::Record first = record();
  auto wait = wait_elsewhere();
  worker_.call_error(first, kIllegalAddress, /*sticky=*/true);
  EXPECT_EQ(wait.get(), kIllegalAddress);
}

TEST_F(SessionEvents, SessionEndEndsWait) {
  EXPECT_TRUE(known_complete());
  record();
  auto wait = wait_elsewhere();
  worker_.goodbye("enough");
  EXPECT_EQ(wait.get(), kResultPeerGone);
}

TEST_F(SessionEvents, LocalAnswerReturnsEarlierError) {
  EXPECT_TRUE(known_complete());
  ASSERT_EQ(session_->post(*Lane::current(), site(2), ByteView()), 0);
  const FakeWorker::Record failing = worker_.next();
  const FakeWorker::Record first = record();
  worker_.call_error(failing, kInvalidImage);
  tell(first);
  int result = 0;
  ASSERT_TRUE(answered(true, &result));
  EXPECT_EQ(result, kInvalidImage);
  EXPECT_TRUE(known_complete());  // Reported once.
}

TEST_F(SessionEvents, EventRecordedElsewhereAlwaysAsksWorker) {
  EXPECT_TRUE(known_complete());
  session_->event_recorded_elsewhere(event_);
  EXPECT_FALSE(known_complete());
  const FakeWorker::Record plain = record();
  EXPECT_EQ(plain.header.flags & protocol::kFlagTell, 0);
  tell(plain);
  settle();
  EXPECT_FALSE(known_complete());
}

TEST_F(SessionEvents, ReusedIndexKnowsNothingOfOldEvent) {
  EXPECT_TRUE(known_complete());
  const FakeWorker::Record first = record();
  EventCompletions events;
  constexpr Handle kOld = 7, kNew = kOld + limits::kHandlesMax;  // The same index.
  events.asked(kOld);
  events.recorded(kOld, 5, true);
  events.recorded(kNew, 9, false);
  events.completed(kOld, 5, 0, 0);
  EXPECT_EQ(events.state(kNew, events.asked(kNew), 0), EventCompletions::State::kAsk);
  EXPECT_EQ(events.state(kOld, 5, 0), EventCompletions::State::kAsk);
  tell(first);
}

// The client answers a poll itself until a message arrives that could show the program that the
// event is complete.
class SessionPolls : public SessionEvents {
 protected:
  // The client's own answer to a poll: 0 or kResultNotReady. -1: the worker must be asked.
  int poll() {
    int result = -1;
    return answered(false, &result) ? result : -1;
  }
  // Asks the worker from this thread. The worker answers that the event is not complete.
  void ask() {
    auto worker =
        std::async(std::launch::async, [&] { worker_.reply(worker_.next(), kResultNotReady); });
    Reply reply;
    EXPECT_EQ(session_->call(*Lane::current(), question(), ByteView(), &reply), kResultNotReady);
  }
  CallSite question() { return about(driver_abi::opcode::cuEventQuery); }
  int post(CallSite what) { return session_->post(*Lane::current(), what, ByteView()); }
};

TEST_F(SessionPolls, PollsSendNothingUntilMessageArrives) {
  const FakeWorker::Record first = record();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(poll(), kResultNotReady);
  settle();  // Its call is the next one at the worker. It may come after the event.
  EXPECT_EQ(poll(), -1);
  ask();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(poll(), kResultNotReady);
  tell(first);
  settle();
  EXPECT_EQ(poll(), 0);
  record();
  EXPECT_EQ(poll(), kResultNotReady);
}

TEST_F(SessionPolls, PollOfUnreportedEventAsksWorker) {
  for (unsigned i = 0; i < EventCompletions::kUnaskedRecords; ++i) record();
  record();
  EXPECT_EQ(poll(), -1);
  ask();
  EXPECT_EQ(poll(), -1);
}

TEST_F(SessionPolls, PollReturnsErrorBeforeNotReady) {
  ASSERT_EQ(post(site(2)), 0);
  const FakeWorker::Record failing = worker_.next();
  auto fence = call_elsewhere(*session_, site(3));
  const FakeWorker::Record asked = worker_.next();
  worker_.call_error(failing, kInvalidImage);
  worker_.reply(asked);
  EXPECT_EQ(fence.get().returned, kInvalidImage);
  record();
  EXPECT_EQ(poll(), kInvalidImage);
  EXPECT_EQ(poll(), kResultNotReady);
}

TEST_F(SessionPolls, PollAsksWorkerWhileBytesArePending) {
  tell(record(), 0, /*watermark=*/1);
  settle();
  EXPECT_EQ(poll(), -1);
}

TEST_F(SessionPolls, PollAsksWorkerAfterHostFunction) {
  const FakeWorker::Record first = record();
  GraphHost::Operation nothing;
  nothing.function = [](void*) {};
  const std::uint64_t operation = session_->graphs().add(nothing);
  ASSERT_NE(operation, 0u);
  protocol::ReplyHeader turn;
  turn.kind = protocol::ReplyKind::kHostTurn;
  turn.call_sequence = first.header.sequence;
  turn.subject = operation;
  const std::uint64_t number = 1;
  worker_.send_item(turn, bytes_of(number));
  worker_.next();  // The function's end, after it has run.
  EXPECT_EQ(poll(), -1);
  ask();
  EXPECT_EQ(poll(), kResultNotReady);
}

TEST_F(SessionPolls, PollAsksWorkerAfterBytesArrive) {
  Bytes to(8);
  record();
  ASSERT_EQ(session_->copy_out(*Lane::current(), site(6), to, 0x2000, false), 0);
  const FakeWorker::Record copy = worker_.next();
  EXPECT_EQ(poll(), kResultNotReady);
  const protocol::BulkHeader chunk = {copy.header.bulk, 0, to.size(), 1};
  Bytes payload(sizeof chunk + to.size());
  std::memcpy(payload.data(), &chunk, sizeof chunk);
  worker_.send_frame(worker_.bulk(), protocol::FrameKind::kChunk, payload, 0);
  while (session_->bulk().outstanding(to)) std::this_thread::yield();
  EXPECT_EQ(poll(), -1);
}

TEST_F(SessionPolls, PollAsksWorkerAfterOwnEarlyAnsweredCall) {
  CallSite copy = site(2);
  copy.order = protocol::Order::kStream;
  copy.flags = protocol::kFlagBarrier;
  CallSite free = site(2);
  free.order = protocol::Order::kOrderedHost;
  for (const CallSite& early : {copy, free}) {
    record();
    ASSERT_EQ(post(early), 0);
    worker_.next();
    EXPECT_EQ(poll(), -1);
    auto others = call_elsewhere(*session_, question());  // Our call does not delay it.
    worker_.reply(worker_.next(), kResultNotReady);
    EXPECT_EQ(others.get().returned, kResultNotReady);
    EXPECT_EQ(poll(), -1);
    ask();
    EXPECT_EQ(poll(), kResultNotReady);  // The client has learned nothing since.
    ASSERT_EQ(post(early), 0);
    worker_.next();
    EXPECT_EQ(poll(), -1);
    record();
    EXPECT_EQ(poll(), kResultNotReady);  // This record comes after it.
  }
}

TEST_F(SessionPolls, PollAsksWorkerAfterEarlyWaitOfAnyThread) {
  constexpr Handle kStream = 77;
  CallSite fill = site(7);
  fill.order = protocol::Order::kStream;
  fill.stream = kStream;
  fill.work = Work::kQuiet;
  CallSite wait = site(3);
  wait.stream = kStream;
  wait.waits = Waits::kForStream;
  record();
  std::thread([&] {
    Lane& other = *Lane::current();
    EXPECT_EQ(session_->post(other, fill, ByteView()), 0);
    int result = -1;
    EXPECT_TRUE(session_->wait_answered_early(other, wait, ByteView(), &result));
  }).join();
  worker_.next();
  worker_.next();
  EXPECT_EQ(poll(), -1);
}

TEST_F(SessionPolls, PollAsksWorkerWhileMemoryOrEventIsShared) {
  record();
  session_->share_memory();
  EXPECT_EQ(poll(), -1);
  session_->unshare_memory();
  EXPECT_EQ(poll(), kResultNotReady);
  session_->share_event(session_->handles().mint(HandleKind::kEvent, 0, nullptr));
  EXPECT_EQ(poll(), -1);
}

}  // namespace
}  // namespace gpurun::client
