// Polls of streams: the client answers a query of a busy stream itself until a message arrives that
// could show the program that the stream is complete, or until it is time to ask.
#include "client/log/stream_polls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "driver_abi/opcodes.h"
#include "tests/unit/client/session/session_under_test.h"

namespace gpurun::client {
namespace {

constexpr Handle kStream = 77, kOther = 78;

class SessionStreamPolls : public ::testing::Test {
 protected:
  // No poll asks because of the time.
  static SessionOptions options() {
    SessionOptions options = quiet();
    options.ask_after_min = std::chrono::hours(1);
    return options;
  }
  CallSite about(Handle stream) {
    CallSite query = site(driver_abi::opcode::cuStreamQuery);
    query.order = protocol::Order::kStream;
    query.stream = stream;
    query.work = Work::kNone;
    return query;
  }
  // The client's own answer: 0 or kResultNotReady. -1: the worker must be asked.
  int poll(Handle stream = kStream) {
    CallSite query = about(stream);
    int result = -1;
    return session_->poll_answered(*Lane::current(), query, &result) ? result : -1;
  }
  // Asks the worker from this thread.
  void ask(int answer, Handle stream = kStream) {
    const CallSite query = about(stream);
    int result = -1;
    EXPECT_FALSE(session_->poll_answered(*Lane::current(), query, &result));
    auto worker = std::async(std::launch::async, [&] {
      const FakeWorker::Record asked = worker_.next();
      protocol::ReplyHeader reply;
      reply.kind = protocol::ReplyKind::kReply;
      reply.lane = asked.header.lane;
      reply.result = answer;
      reply.call_sequence = asked.header.sequence;
      worker_.send_item(reply);
    });
    Reply reply;
    EXPECT_EQ(session_->call(*Lane::current(), query, ByteView(), &reply), answer);
    worker.get();
  }
  // Returns after all items so far were handled. The other thread's call returns 0, or `error` of
  // this thread's call if it began before that came.
  void settle(int error = 0) {
    auto fence = call_elsewhere(*session_, site(3));
    worker_.reply(worker_.next());
    EXPECT_THAT(fence.get().returned, testing::AnyOf(0, error));
  }
  int post(CallSite what) {
    const int result = session_->post(*Lane::current(), what, ByteView());
    worker_.next();
    return result;
  }
  int launch(Handle stream) {
    CallSite what = site(2);
    what.order = protocol::Order::kStream;
    what.stream = stream;
    return post(what);
  }

  FakeWorker worker_;
  std::unique_ptr<Session> session_ = start(worker_, options());
};

TEST_F(SessionStreamPolls, CompleteAnswerIsKeptUntilMoreWork) {
  ASSERT_EQ(launch(kStream), 0);
  EXPECT_EQ(poll(), -1);
  ask(0);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(poll(), 0);
  ASSERT_EQ(launch(kStream), 0);
  EXPECT_EQ(poll(), -1);
}

TEST_F(SessionStreamPolls, CompleteAnswerEndsWithOtherThreadsWork) {
  ask(0);
  EXPECT_EQ(poll(), 0);
  CallSite work = site(2);
  work.order = protocol::Order::kStream;
  work.stream = kStream;
  auto other = std::async(std::launch::async,
                          [&] { return session_->post(*Lane::current(), work, ByteView()); });
  EXPECT_EQ(other.get(), 0);
  EXPECT_EQ(poll(), -1);
}

TEST_F(SessionStreamPolls, AnyNewsIsAskedAbout) {
  ASSERT_EQ(launch(kStream), 0);
  ask(kResultNotReady);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(poll(), kResultNotReady);
  settle();  // What it waited for may have come after the stream's work.
  EXPECT_EQ(poll(), -1);
}

TEST_F(SessionStreamPolls, EarlyAnswersOfAnyThreadAreAskedAbout) {
  CallSite copy = site(2);
  copy.order = protocol::Order::kStream;
  copy.flags = protocol::kFlagBarrier;
  ASSERT_EQ(launch(kStream), 0);
  ask(kResultNotReady);
  ASSERT_EQ(post(copy), 0);
  EXPECT_EQ(poll(), -1);
  ask(kResultNotReady);
  EXPECT_EQ(poll(), kResultNotReady);
  auto other = std::async(std::launch::async,
                          [&] { return session_->post(*Lane::current(), copy, ByteView()); });
  EXPECT_EQ(other.get(), 0);
  EXPECT_EQ(poll(), -1);
}

TEST_F(SessionStreamPolls, HostMemoryOfOtherStreamsIsAskedAbout) {
  session_->begin_device_reach();
  CallSite work = site(2);
  work.order = protocol::Order::kStream;
  work.stream = kStream;
  ASSERT_EQ(post(work), 0);
  ask(kResultNotReady);
  EXPECT_EQ(poll(), kResultNotReady);  // What its own work writes does not show its end.
  work.stream = kOther;
  ASSERT_EQ(post(work), 0);
  EXPECT_EQ(poll(), -1);
}

TEST_F(SessionStreamPolls, CompleteAnswerHidesNoLaterError) {
  ask(0);
  ASSERT_EQ(session_->post(*Lane::current(), site(2), ByteView()), 0);
  worker_.call_error(worker_.next(), kInvalidImage);
  settle(kInvalidImage);
  EXPECT_EQ(poll(), -1);  // The call since may have failed.
}

// A poll asks again at a bounded rate, so that polls cost few round trips.
TEST(StreamPollsTest, IntervalGrowsWithTheWait) {
  using Clock = StreamPolls::Clock;
  StreamPolls polls;
  StreamPolls::Answer answer;
  answer.context = kContext;
  answer.stream = kStream;
  answer.sequence = 1;
  Clock::time_point now{};
  const Clock::time_point begin = now;
  polls.answered(answer, now);
  unsigned asked = 1;
  for (; now - begin < std::chrono::seconds(1); now += std::chrono::microseconds(5)) {
    if (polls.find(kContext, kStream)->may_go_on(now, StreamPolls::kAskAfterMin)) continue;
    ++answer.sequence;
    ++asked;
    polls.answered(answer, now);
  }
  EXPECT_GT(asked, 900u);  // At least once a millisecond.
  EXPECT_LT(asked, 1100u);
}

TEST(StreamPollsTest, KeepsFewStreams) {
  StreamPolls polls;
  StreamPolls::Answer answer;
  answer.context = kContext;
  for (std::uint64_t i = 1; i <= StreamPolls::kStreamsMax + 1; ++i) {
    answer.stream = 100 + i;
    answer.sequence = i;
    polls.answered(answer, {});
  }
  EXPECT_EQ(polls.find(kContext, 101), nullptr);
  EXPECT_NE(polls.find(kContext, 102), nullptr);
  EXPECT_EQ(polls.find(kContext + 1, 102), nullptr);
  polls.forget();
  EXPECT_EQ(polls.find(kContext, 102), nullptr);
}

}  // namespace
}  // namespace gpurun::client
