// The completion of events that the worker tells unasked: a wait for one sends nothing, and ends
// with the news, its context or the session.
#include "client/event_completions.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "tests/unit/client/session_under_test.h"

namespace gpurun::client {
namespace {

// One event, and what the worker tells of it.
class SessionEvents : public ::testing::Test {
 protected:
  // Records it; returns what the worker gets.
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
  // Without a wait; what it returns must be 0.
  bool known_complete() {
    int result = -1;
    const bool known = answered(false, &result);
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
  // Everything told so far has been handled afterwards.
  void settle(int expected = 0) {
    auto fence = call_elsewhere(*session_, site(3));
    worker_.reply(worker_.next());
    EXPECT_EQ(fence.get().returned, expected);
  }

  FakeWorker worker_;
  std::unique_ptr<Session> session_ = start(worker_);
  const Handle event_ = session_->handles().mint(HandleKind::kEvent, 0, nullptr);
};

TEST_F(SessionEvents, OneThatWasNeverRecordedIsComplete) { EXPECT_TRUE(known_complete()); }

TEST_F(SessionEvents, OneThatNobodyAsksAboutIsNotTold) {
  EXPECT_EQ(record().header.flags & protocol::kFlagTell, 0);
  EXPECT_FALSE(known_complete());  // The worker is asked this time.
  EXPECT_NE(record().header.flags & protocol::kFlagTell, 0);
}

TEST_F(SessionEvents, IsKnownCompleteAfterItsLastRecordOnly) {
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
  tell(first);  // However late.
  settle();
  EXPECT_TRUE(known_complete());
  record();
  EXPECT_FALSE(known_complete());
}

TEST_F(SessionEvents, AWaitSendsNothingAndEndsWithTheNews) {
  EXPECT_TRUE(known_complete());
  const FakeWorker::Record first = record();
  ASSERT_EQ(session_->post(*Lane::current(), site(2), ByteView()), 0);
  worker_.next();
  auto wait = wait_elsewhere();
  tell(first);
  EXPECT_EQ(wait.get(), 0);
  settle();  // Its call is the next that the worker gets: next() would have seen another.
}

TEST_F(SessionEvents, AWaitEndsNoSoonerThanTheBytesAreThere) {
  EXPECT_TRUE(known_complete());
  tell(record(), 0, /*watermark=*/1);
  settle();
  EXPECT_FALSE(known_complete());
}

TEST_F(SessionEvents, AWaitOfARecordThatIsNotToldAsksTheWorker) {
  EXPECT_TRUE(known_complete());
  const FakeWorker::Record captured = record();
  auto wait = wait_elsewhere();
  tell(captured, 900);
  EXPECT_EQ(wait.get(), -1);
  EXPECT_FALSE(known_complete());
}

TEST_F(SessionEvents, AWaitEndsWithItsContext) {
  EXPECT_TRUE(known_complete());
  const FakeWorker::Record first = record();
  auto wait = wait_elsewhere();
  worker_.call_error(first, kIllegalAddress, /*sticky=*/true);
  EXPECT_EQ(wait.get(), kIllegalAddress);
}

TEST_F(SessionEvents, AWaitEndsWithTheSession) {
  EXPECT_TRUE(known_complete());
  record();
  auto wait = wait_elsewhere();
  worker_.goodbye("enough");
  EXPECT_EQ(wait.get(), kResultPeerGone);
}

TEST_F(SessionEvents, WhatFailedBeforeIsToldWithALocalAnswer) {
  EXPECT_TRUE(known_complete());
  ASSERT_EQ(session_->post(*Lane::current(), site(2), ByteView()), 0);
  const FakeWorker::Record failing = worker_.next();
  const FakeWorker::Record first = record();
  worker_.call_error(failing, kInvalidImage);
  tell(first);
  int result = 0;
  ASSERT_TRUE(answered(true, &result));
  EXPECT_EQ(result, kInvalidImage);
  EXPECT_TRUE(known_complete());  // Told once.
}

TEST_F(SessionEvents, OneThatAGraphMayRecordIsAlwaysAskedFor) {
  EXPECT_TRUE(known_complete());
  session_->event_recorded_elsewhere(event_);
  EXPECT_FALSE(known_complete());
  const FakeWorker::Record plain = record();
  EXPECT_EQ(plain.header.flags & protocol::kFlagTell, 0);
  tell(plain);
  settle();
  EXPECT_FALSE(known_complete());
}

TEST_F(SessionEvents, AnEndedOnesPlaceKnowsNothingOfIt) {
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

}  // namespace
}  // namespace gpurun::client
