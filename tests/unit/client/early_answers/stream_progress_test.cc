// StreamProgress: the client answers a wait itself only if the server's answer would come at once.
// Any work since the last wait forbids it, from any thread, in any stream in which the work could
// run.
#include "client/early_answers/stream_progress.h"

#include <gtest/gtest.h>

#include <thread>

#include "protocol/log/record.h"
#include "tests/unit/client/session/session_under_test.h"

namespace gpurun::client {
namespace {

constexpr Handle kOtherContext = 0x5D00'0000'0000'0002;
constexpr Handle kStream = 0x5D00'0000'0000'0401;
constexpr Handle kOtherStream = 0x5D00'0000'0000'0402;
constexpr std::uint32_t kLane = 5;
constexpr std::uint32_t kOtherLane = 6;
constexpr std::uint64_t kLegacy = protocol::kStreamLegacy;
constexpr std::uint64_t kThread = protocol::kStreamPerThread;

class StreamProgressTest : public ::testing::Test {
 protected:
  void issue(Handle stream) { issue(kContext, stream); }
  // Issues a record as the log does.
  void issue(Handle context, Handle stream, Work work = Work::kAny) {
    ++last_;
    for (auto* mark : progress_.marks(context, stream, work)) {
      if (mark != nullptr) mark->store(last_, std::memory_order_release);
    }
  }
  void wait(Waits waits, Handle stream = 0) {
    issue(stream);
    progress_.complete(waits, kContext, stream, last_);
  }
  bool idle(Handle stream) { return progress_.idle(Waits::kForStream, kContext, stream); }
  void issue_quietly(Handle stream) { issue(kContext, stream, Work::kQuiet); }
  bool may_wait_early(Handle stream, std::uint32_t lane = kLane) {
    return progress_.may_wait_early(lane, kContext, stream);
  }
  bool context_idle() { return progress_.idle(Waits::kForContext, kContext, 0); }

  StreamProgress progress_;
  std::uint64_t last_ = 0;
};

TEST_F(StreamProgressTest, UnawaitedStreamIsNotIdle) {
  EXPECT_FALSE(idle(kStream));
  EXPECT_FALSE(idle(0));
  EXPECT_FALSE(context_idle());
  issue(kStream);
  EXPECT_FALSE(idle(kStream));
}

TEST_F(StreamProgressTest, WorkIsCompleteUpToTheLastReport) {
  const auto complete = [this](Handle stream, std::uint64_t sequence) {
    return progress_.complete_up_to(kContext, stream, sequence);
  };
  const auto last = [this](Handle stream) { return progress_.last_issued_in(kContext, stream); };
  EXPECT_EQ(last(kStream), 0u);
  EXPECT_TRUE(complete(kStream, 0));
  issue(kStream);
  issue_quietly(kStream);
  const std::uint64_t first = last(kStream);
  EXPECT_EQ(first, last_);
  EXPECT_FALSE(complete(kStream, first));
  issue(kOtherStream);
  wait(Waits::kForStream, kOtherStream);
  EXPECT_FALSE(complete(kStream, first));  // Another stream's wait.
  wait(Waits::kForStream, kStream);
  issue(kStream);
  EXPECT_TRUE(complete(kStream, first));  // Newer work does not matter.
  EXPECT_FALSE(complete(kStream, last(kStream)));
  progress_.told(kContext, kStream, last_ + 1);
  EXPECT_TRUE(complete(kStream, last(kStream)));
  issue(kStream);
  issue(kLegacy);
  EXPECT_EQ(last(kLegacy), last_);
  EXPECT_FALSE(complete(kLegacy, last_));
  EXPECT_FALSE(complete(kThread, 0));
  wait(Waits::kForContext);
  EXPECT_TRUE(complete(kStream, last(kStream)));
  EXPECT_TRUE(complete(kLegacy, last(kLegacy)));
}

TEST_F(StreamProgressTest, EveryWorkOfContextChangesItsLastCall) {
  const auto last = [this] { return progress_.last_issued(kContext); };
  EXPECT_EQ(last(), 0u);
  for (const Handle stream : {Handle{0}, Handle{kThread}, kStream}) {
    issue(stream);
    EXPECT_EQ(last(), last_);
  }
  for (const Work work : {Work::kQuiet, Work::kRecord, Work::kStreamWait, Work::kNone}) {
    issue(kContext, kStream, work);
    EXPECT_EQ(last(), last_);
  }
  const std::uint64_t before = last();
  issue(kOtherContext, 0);
  issue(kContext, 0, Work::kNone);  // As a free.
  EXPECT_EQ(last(), before);
  progress_.issued_anywhere(++last_);  // The launch of a graph.
  EXPECT_EQ(last(), last_);
  EXPECT_EQ(progress_.last_issued(kOtherContext), last_);
}

TEST_F(StreamProgressTest, CreatedStreamStaysIdleUntilNextUse) {
  issue(kStream);
  issue(kOtherStream);
  wait(Waits::kForStream, kStream);
  EXPECT_TRUE(idle(kStream));
  EXPECT_FALSE(idle(kOtherStream));
  EXPECT_FALSE(idle(0));
  EXPECT_FALSE(context_idle()) << "the other stream may still work";
  issue(kOtherStream);
  issue(0);
  EXPECT_TRUE(idle(kStream)) << "what others do later is not its work";
  issue(kStream);
  EXPECT_FALSE(idle(kStream));
}

// Work of the legacy stream waits for the work of all blocking streams.
TEST_F(StreamProgressTest, LegacyStreamStaysIdleUntilNextWorkInContext) {
  issue(kStream);
  wait(Waits::kForStream, 0);
  EXPECT_TRUE(idle(0));
  EXPECT_TRUE(idle(kLegacy));
  EXPECT_FALSE(idle(kStream)) << "it may be a non-blocking one";
  EXPECT_FALSE(context_idle());
  issue(kStream);
  EXPECT_FALSE(idle(0));
  wait(Waits::kForStream, kLegacy);
  EXPECT_TRUE(idle(0));
  issue(kThread);
  EXPECT_FALSE(idle(0));
}

TEST_F(StreamProgressTest, ContextWithOnlyLegacyStreamIsIdleAfterItsWait) {
  issue(0);
  wait(Waits::kForStream, 0);
  EXPECT_TRUE(context_idle());
  issue(kThread);
  EXPECT_FALSE(context_idle());
}

TEST_F(StreamProgressTest, ContextWaitMakesAllStreamsIdle) {
  issue(kStream);
  issue(kThread);
  wait(Waits::kForContext);
  EXPECT_TRUE(context_idle());
  EXPECT_TRUE(idle(kStream));
  EXPECT_TRUE(idle(kThread));
  EXPECT_TRUE(idle(0));
  issue(kStream);
  EXPECT_FALSE(context_idle());
  EXPECT_FALSE(idle(kStream));
  EXPECT_FALSE(idle(kThread));
}

// Each thread has its own per-thread stream, so a wait for one of them proves nothing about the
// others. A free of host memory uses this answer, because it then has nothing to order
// (docs/adr/0038).
TEST_F(StreamProgressTest, ContextStaysCompleteUntilNextWork) {
  EXPECT_TRUE(progress_.complete(kContext));
  issue(kContext, 0, Work::kNone);  // A record that only keeps the order is not work.
  EXPECT_TRUE(progress_.complete(kContext));
  issue(kStream);
  EXPECT_FALSE(progress_.complete(kContext));
  EXPECT_TRUE(progress_.complete(kOtherContext));
  wait(Waits::kForContext);
  EXPECT_TRUE(progress_.complete(kContext));
  issue(kContext, 0, Work::kNone);
  EXPECT_TRUE(progress_.complete(kContext));
  progress_.issued_anywhere(++last_);  // A graph's nodes may belong to any context.
  EXPECT_FALSE(progress_.complete(kContext));
  EXPECT_FALSE(progress_.complete(kOtherContext));
}

TEST_F(StreamProgressTest, PerThreadStreamIsIdleOnlyAfterContextWait) {
  issue(kThread);
  wait(Waits::kForStream, kThread);
  EXPECT_FALSE(idle(kThread));
  wait(Waits::kForContext);
  EXPECT_TRUE(idle(kThread));
}

TEST_F(StreamProgressTest, OtherContextsWaitDoesNotMakeContextIdle) {
  issue(0);
  issue(kOtherContext, 0);
  progress_.complete(Waits::kForContext, kOtherContext, 0, last_);
  EXPECT_FALSE(context_idle());
  EXPECT_TRUE(progress_.idle(Waits::kForContext, kOtherContext, 0));
}

// A graph's nodes run in their own contexts.
TEST_F(StreamProgressTest, GraphLaunchMakesEveryContextBusy) {
  wait(Waits::kForContext);
  issue(kOtherContext, 0);
  progress_.issued_anywhere(last_);
  EXPECT_FALSE(context_idle());
  wait(Waits::kForContext);
  EXPECT_TRUE(context_idle());
}

// A handle's index is reused after its end. The new stream inherits nothing.
TEST_F(StreamProgressTest, StreamWithReusedIndexIsNotIdle) {
  wait(Waits::kForStream, kStream);
  const Handle next = kStream + limits::kHandlesMax;
  issue(next);
  EXPECT_FALSE(idle(next));
  EXPECT_FALSE(idle(kStream));
}

// Fills and small copies complete soon, and nobody notices them before a read.
TEST_F(StreamProgressTest, AllowsEarlyWaitBehindOnlyQuietWork) {
  EXPECT_FALSE(may_wait_early(kStream)) << "nothing is known of it";
  issue_quietly(kStream);
  EXPECT_TRUE(may_wait_early(kStream));
  EXPECT_FALSE(idle(kStream));
  EXPECT_FALSE(context_idle());
  issue(kStream);
  issue_quietly(kStream);
  EXPECT_FALSE(may_wait_early(kStream)) << "a kernel may stand before the fill";
  wait(Waits::kForStream, kStream);
  EXPECT_TRUE(idle(kStream));
  issue_quietly(kStream);
  EXPECT_FALSE(idle(kStream));
  EXPECT_TRUE(may_wait_early(kStream));
  issue(kOtherStream);
  EXPECT_TRUE(may_wait_early(kStream)) << "non-blocking streams stand behind no other";
  EXPECT_FALSE(may_wait_early(kOtherStream));
  wait(Waits::kForContext);
  issue_quietly(kOtherStream);
  EXPECT_TRUE(may_wait_early(kOtherStream));
}

// Behind a wait for an event, any work of another stream may be pending.
TEST_F(StreamProgressTest, StreamWaitPreventsEarlyWait) {
  issue_quietly(kStream);
  issue(kContext, kStream, Work::kStreamWait);
  issue_quietly(kStream);
  EXPECT_FALSE(may_wait_early(kStream));
  EXPECT_FALSE(idle(kStream));
  wait(Waits::kForStream, kStream);
  EXPECT_TRUE(idle(kStream));
  issue_quietly(kStream);
  EXPECT_TRUE(may_wait_early(kStream));
  issue(kContext, kStream, Work::kNone);
  EXPECT_TRUE(may_wait_early(kStream)) << "no work";
}

// An upload: a fill or a copy in behind any awaited work, and the event behind it.
TEST_F(StreamProgressTest, EventBehindQuietWorkEndsUpload) {
  EXPECT_FALSE(progress_.ends_upload(kStream));
  issue_quietly(kStream);
  EXPECT_TRUE(progress_.ends_upload(kStream));
  issue(kContext, kStream, Work::kRecord);
  EXPECT_TRUE(progress_.ends_upload(kStream));
  issue(kContext, kStream, Work::kStreamWait);
  issue(kContext, kStream, Work::kRecord);
  EXPECT_FALSE(progress_.ends_upload(kStream)) << "this one tells the end of the other's work";
  issue_quietly(kStream);
  EXPECT_TRUE(progress_.ends_upload(kStream));
  issue(kStream);
  EXPECT_FALSE(progress_.ends_upload(kStream));
  for (const Handle stream : {Handle{0}, Handle{kLegacy}, Handle{kThread}}) {
    issue_quietly(stream);
    EXPECT_FALSE(progress_.ends_upload(stream)) << stream;
  }
}

TEST_F(StreamProgressTest, AllowsEarlyWaitForUploadFollowedByLaterUpload) {
  const auto upload = [this] {
    issue(kContext, kStream, Work::kStreamWait);
    issue_quietly(kStream);
    issue(kContext, kStream, Work::kRecord);
    return last_;
  };
  const auto may = [this](std::uint64_t record, std::uint32_t lane = kLane) {
    return progress_.may_wait_for_upload(lane, kContext, kStream, record);
  };
  issue(0);  // Makes the context known.
  const std::uint64_t first = upload();
  EXPECT_FALSE(may(first)) << "it is the last: whoever waits for that wants to know";
  issue(kContext, kStream, Work::kNone);
  EXPECT_FALSE(may(first)) << "such a wait is nothing to go on with";
  const std::uint64_t second = upload();
  EXPECT_TRUE(may(first));
  EXPECT_FALSE(may(second));
  issue(kStream);  // For example a kernel.
  EXPECT_FALSE(may(first));
  const std::uint64_t third = upload();
  upload();
  EXPECT_FALSE(may(third)) << "it stands behind the kernel";
  progress_.told(kContext, kStream, third);
  EXPECT_TRUE(may(third)) << "of which the worker has told";
  EXPECT_FALSE(idle(kStream)) << "which brings nothing that kernels have printed";
  progress_.copied_early(kOtherLane, ++last_);
  EXPECT_FALSE(may(third));
  EXPECT_TRUE(may(third, kOtherLane));
}

// Work in the legacy and per-thread streams waits for other streams.
TEST_F(StreamProgressTest, OnlyCreatedStreamsAllowEarlyWait) {
  for (const Handle stream : {Handle{0}, Handle{kLegacy}, Handle{kThread}}) {
    issue_quietly(stream);
    EXPECT_FALSE(may_wait_early(stream)) << stream;
    EXPECT_FALSE(idle(stream)) << stream;
  }
}

// A program that only fills and waits thus keeps the device's pace, and no query waits for more
// than that.
TEST_F(StreamProgressTest, LimitsConsecutiveEarlyWaits) {
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < StreamProgress::kQuietMax; ++i) {
      issue_quietly(kStream);
      ASSERT_TRUE(may_wait_early(kStream)) << i;
    }
    issue_quietly(kStream);
    EXPECT_FALSE(may_wait_early(kStream));
    issue_quietly(kOtherStream);
    EXPECT_TRUE(may_wait_early(kOtherStream));
    wait(Waits::kForStream, kStream);
    wait(Waits::kForStream, kOtherStream);
  }
}

// Another thread's early-answered copy may be behind a kernel, and this stream's work behind the
// copy. The lane that made the copy already knows that it is done.
TEST_F(StreamProgressTest, OtherLanesEarlyCopyPreventsEarlyWait) {
  issue_quietly(kStream);
  issue(0);
  progress_.copied_early(kLane, last_);
  EXPECT_TRUE(may_wait_early(kStream, kLane));
  EXPECT_FALSE(may_wait_early(kStream, kOtherLane));
  wait(Waits::kForContext);
  issue_quietly(kStream);
  EXPECT_FALSE(may_wait_early(kStream, kOtherLane)) << "the copy may be another context's";
  wait(Waits::kForStream, kOtherStream);
  EXPECT_TRUE(may_wait_early(kStream, kOtherLane)) << "every stream stands behind the copy";
}

CallSite waiting_site() {
  CallSite result = site(3);
  result.stream = kStream;
  result.order = protocol::Order::kStream;
  result.waits = Waits::kForStream;
  return result;
}

TEST(IdleStreamWait, SecondWaitSendsNothing) {
  FakeWorker worker;
  const auto session = start(worker);
  int result = -1;
  EXPECT_FALSE(session->idle_answered(*Lane::current(), waiting_site(), &result));
  auto called = call_elsewhere(*session, waiting_site());
  worker.reply(worker.next());
  EXPECT_EQ(called.get().returned, 0);
  EXPECT_TRUE(session->idle_answered(*Lane::current(), waiting_site(), &result));
  EXPECT_EQ(result, 0);
  // Another thread uses the stream.
  auto posted = std::async(std::launch::async, [&session] {
    return session->post(*Lane::current(), waiting_site(), ByteView());
  });
  EXPECT_EQ(posted.get(), 0);
  EXPECT_FALSE(session->idle_answered(*Lane::current(), waiting_site(), &result));
}

// A failed wait, or a query with NOT_READY, proves nothing about the stream.
TEST(IdleStreamWait, FailedWaitDoesNotMakeStreamIdle) {
  FakeWorker worker;
  const auto session = start(worker);
  constexpr int kNotReady = 600;
  auto called = call_elsewhere(*session, waiting_site());
  worker.reply(worker.next(), kNotReady);
  EXPECT_EQ(called.get().returned, kNotReady);
  int result = -1;
  EXPECT_FALSE(session->idle_answered(*Lane::current(), waiting_site(), &result));
}

// A thread with calls since its last fence may have to learn of their failure, which only a fence
// reports.
TEST(IdleStreamWait, UncheckedCallOfThreadPreventsLocalAnswer) {
  FakeWorker worker;
  const auto session = start(worker);
  auto called = call_elsewhere(*session, waiting_site());
  worker.reply(worker.next());
  EXPECT_EQ(called.get().returned, 0);
  Lane& lane = *Lane::current();
  ASSERT_EQ(session->post(lane, site(1), ByteView()), 0);  // In no stream.
  int result = -1;
  EXPECT_FALSE(session->idle_answered(lane, waiting_site(), &result));
}

CallSite quiet_site() {
  CallSite result = site(7);
  result.stream = kStream;
  result.order = protocol::Order::kStream;
  result.work = Work::kQuiet;
  return result;
}

TEST(EarlyWait, SendsBarrierWithoutReply) {
  FakeWorker worker;
  const auto session = start(worker);
  Lane& lane = *Lane::current();
  int result = -1;
  EXPECT_FALSE(session->wait_answered_early(lane, waiting_site(), ByteView(), &result));
  ASSERT_EQ(session->post(lane, quiet_site(), ByteView()), 0);
  EXPECT_EQ(worker.next().header.opcode, quiet_site().opcode);
  EXPECT_TRUE(session->wait_answered_early(lane, waiting_site(), ByteView(), &result));
  EXPECT_EQ(result, 0);
  const FakeWorker::Record record = worker.next();
  EXPECT_EQ(record.header.opcode, waiting_site().opcode);
  EXPECT_EQ(record.header.order, protocol::Order::kStream);
  EXPECT_EQ(record.header.flags, protocol::kFlagBarrier);
  EXPECT_EQ(record.header.stream, kStream);
}

// Another process may learn of the wait in an unknown way, and read the memory.
TEST(EarlyWait, IsDisabledWhileMemoryIsShared) {
  FakeWorker worker;
  const auto session = start(worker);
  Lane& lane = *Lane::current();
  ASSERT_EQ(session->post(lane, quiet_site(), ByteView()), 0);
  int result = -1;
  session->share_memory();
  EXPECT_FALSE(session->wait_answered_early(lane, waiting_site(), ByteView(), &result));
  session->unshare_memory();
  EXPECT_TRUE(session->wait_answered_early(lane, waiting_site(), ByteView(), &result));
}

// A fence reports failures, so one must come soon, whatever streams a thread waits for.
TEST(EarlyWait, LimitsConsecutiveEarlyWaitsOfThread) {
  FakeWorker worker;
  const auto session = start(worker);
  std::uint32_t early = 0;
  std::thread([&] {  // A separate lane.
    Lane& lane = *Lane::current();
    int result = -1;
    for (bool more = true; more && early <= StreamProgress::kQuietMax; early += more ? 1 : 0) {
      CallSite fill = quiet_site(), wait = waiting_site();
      fill.stream = wait.stream = kStream + early;
      ASSERT_EQ(session->post(lane, fill, ByteView()), 0);
      worker.next();
      more = session->wait_answered_early(lane, wait, ByteView(), &result);
      if (more) worker.next();
    }
  })
      .join();
  EXPECT_EQ(early, StreamProgress::kQuietMax);
}

TEST(EarlyWait, ReturnsDeferredError) {
  FakeWorker worker;
  const auto session = start(worker);
  Lane& lane = *Lane::current();
  ASSERT_EQ(session->post(lane, quiet_site(), ByteView()), 0);
  const FakeWorker::Record record = worker.next();
  protocol::ReplyHeader header;
  header.kind = protocol::ReplyKind::kCallError;
  header.result = kInvalidImage;
  header.lane = record.header.lane;
  header.call_sequence = record.header.sequence;
  header.context = kContext;
  worker.send_item(header);
  // It follows on the wire, so the error has been handled when this answer arrives.
  auto called = call_elsewhere(*session, site(1));
  worker.reply(worker.next());
  EXPECT_EQ(called.get().result, 0);
  int result = -1;
  EXPECT_TRUE(session->wait_answered_early(lane, waiting_site(), ByteView(), &result));
  EXPECT_EQ(result, kInvalidImage);
}

TEST(IdleStreamWait, ReturnsErrorOfLostContextAndEndedSession) {
  auto worker = std::make_unique<FakeWorker>();
  const auto session = start(*worker);
  auto called = call_elsewhere(*session, waiting_site());
  worker->reply(worker->next());
  EXPECT_EQ(called.get().returned, 0);
  auto lost = call_elsewhere(*session, site(1));
  const FakeWorker::Record record = worker->next();
  protocol::ReplyHeader header;
  header.kind = protocol::ReplyKind::kCallError;
  header.flags = protocol::kReplyFlagSticky;
  header.result = kIllegalAddress;
  header.context = kContext;
  worker->send_item(header);
  worker->reply(record);
  EXPECT_EQ(lost.get().returned, kIllegalAddress);
  int result = -1;
  EXPECT_TRUE(session->idle_answered(*Lane::current(), waiting_site(), &result));
  EXPECT_EQ(result, kIllegalAddress);
  worker.reset();
  auto gone = call_elsewhere(*session, site(2, kOtherContext));
  EXPECT_EQ(gone.get().returned, kResultPeerGone);
  EXPECT_TRUE(session->idle_answered(*Lane::current(), waiting_site(), &result));
  EXPECT_EQ(result, kResultPeerGone);
}

}  // namespace
}  // namespace gpurun::client
