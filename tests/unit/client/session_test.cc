// A session keeps the order of all threads' calls, sends without timers, brings each reply to its
// lane, tells each failure once, and when its peer dies nobody keeps waiting.
#include "client/session.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "client/event_completions.h"
#include "client/fork_guard.h"
#include "client/stats.h"
#include "tests/unit/client/fake_worker.h"

namespace gpurun::client {
namespace {

constexpr Handle kContext = 0x5D00'0000'0000'0001;
constexpr int kInvalidImage = 200;
constexpr int kIllegalAddress = 700;

CallSite site(std::uint16_t opcode, Handle context = kContext) {
  CallSite result;
  result.opcode = opcode;
  result.context = context;
  return result;
}

// No timer of the session falls into a test.
SessionOptions quiet() {
  SessionOptions options;
  options.heartbeat = std::chrono::hours(1);
  options.silence_deadline = std::chrono::hours(2);
  return options;
}

std::unique_ptr<Session> start(FakeWorker& worker, const SessionOptions& options = quiet()) {
  auto session = Session::start(worker.channels(), options);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return session.ok() ? *std::move(session) : nullptr;
}

struct Called {
  int returned = -1;
  int result = -1;
  std::string payload;
};

// A call on a thread of its own, with that thread's lane.
std::future<Called> call_elsewhere(Session& session, const CallSite& what) {
  return std::async(std::launch::async, [&session, what] {
    Called called;
    Reply reply;
    called.returned = session.call(*Lane::current(), what, ByteView(), &reply);
    called.result = reply.result;
    if (called.returned == 0) {
      called.payload.assign(reinterpret_cast<const char*>(reply.payload.data()),
                            reply.payload.size());
    }
    return called;
  });
}

ByteView text(const char* from) { return byte_view(from, std::strlen(from)); }

TEST(Session, PostsOfThreadsArriveWithoutGapsAndInEachThreadsOrder) {
  FakeWorker worker;
  auto session = start(worker);
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kEach = 500;
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&session, thread] {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        const std::uint32_t payload[2] = {thread, i};
        EXPECT_EQ(session->post(*Lane::current(), site(1), bytes_of(payload)), 0);
      }
    });
  }
  std::uint32_t next[kThreads] = {};
  for (std::uint32_t i = 0; i < kThreads * kEach; ++i) {
    const FakeWorker::Record record = worker.next();  // It checks the numbers.
    std::uint32_t payload[2];
    ASSERT_EQ(record.payload.size(), sizeof payload);
    std::memcpy(payload, record.payload.data(), sizeof payload);
    ASSERT_LT(payload[0], kThreads);
    EXPECT_EQ(payload[1], next[payload[0]]++);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Session, FencesGetTheirOwnReplies) {
  FakeWorker worker;
  auto session = start(worker);
  auto first = call_elsewhere(*session, site(11));
  auto second = call_elsewhere(*session, site(12));
  FakeWorker::Record records[2] = {worker.next(), worker.next()};
  if (records[0].header.opcode != 11) std::swap(records[0], records[1]);
  EXPECT_NE(records[0].header.flags & protocol::kFlagFence, 0);
  worker.reply(records[1], 0, text("second"));
  worker.reply(records[0], kInvalidImage, text("first"));
  const Called one = first.get();
  EXPECT_EQ(one.returned, kInvalidImage);
  EXPECT_EQ(one.result, kInvalidImage);
  const Called two = second.get();
  EXPECT_EQ(two.returned, 0);
  EXPECT_EQ(two.payload, "second");
}

TEST(Session, PostsReturnWhileTheWorkerReadsNothing) {
  FakeWorker worker;
  auto session = start(worker);
  const Bytes payload(1024);  // More in all than the transport holds.
  static_assert(1000 * 1024 > 2 * transport::loopback::kQueueBytes);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(session->post(*Lane::current(), site(1), ByteView(payload)), 0);
  }
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(worker.next().payload.size(), payload.size());
}

TEST(Session, FullLogWaitsForTheWorkersAcknowledgement) {
  FakeWorker worker;
  SessionOptions options = quiet();
  options.log_bytes = std::size_t{512} << 10;
  auto session = start(worker, options);
  constexpr int kPosts = 2000;  // Several times the ring.
  std::thread poster([&session] {
    const Bytes payload(1000);
    for (int i = 0; i < kPosts; ++i) {
      EXPECT_EQ(session->post(*Lane::current(), site(1), ByteView(payload)), 0);
    }
  });
  for (int i = 0; i < kPosts; ++i) worker.acknowledge(worker.next().header.sequence);
  poster.join();
}

TEST(Session, PostThatNothingFollowsIsSent) {
  FakeWorker worker;
  auto session = start(worker);
  // Again and again at the edge from busy to idle, where a wake-up could be lost.
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(session->post(*Lane::current(), site(7), ByteView()), 0);
    ASSERT_EQ(worker.next().header.opcode, 7) << "post " << i;
  }
}

TEST(Session, DeathWakesEveryWaiterWithOneErrorAndOneMessage) {
  FakeWorker worker;
  SessionOptions options = quiet();
  options.log_bytes = std::size_t{512} << 10;
  auto session = start(worker, options);
  testing::internal::CaptureStderr();
  std::vector<std::future<Called>> fences;
  for (int i = 0; i < 4; ++i) fences.push_back(call_elsewhere(*session, site(1)));
  for (int i = 0; i < 4; ++i) worker.next();
  auto poster = std::async(std::launch::async, [&session] {  // Ends up waiting for room.
    const Bytes payload(60'000);
    int result = 0;
    while (result == 0) result = session->post(*Lane::current(), site(2), ByteView(payload));
    return result;
  });
  worker.next();
  worker.goodbye("the worker was killed by signal 9");
  for (auto& fence : fences) EXPECT_EQ(fence.get().returned, kResultPeerGone);
  EXPECT_EQ(poster.get(), kResultPeerGone);
  EXPECT_EQ(session->post(*Lane::current(), site(1), ByteView()), kResultPeerGone);
  EXPECT_EQ(session->health(kContext), kResultPeerGone);
  EXPECT_FALSE(session->alive());
  EXPECT_NE(session->death().message().find("signal 9"), std::string::npos);
  session.reset();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("fake:1 is gone: peer gone: the worker was killed by signal 9"),
            std::string::npos)
      << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// What happens at them is tested with shorter ones: below, and in
// tests/unit/server/decoder_test.cc.
TEST(Session, TheProductsTimesAreTheBoundsOfTheProtocol) {
  EXPECT_EQ(SessionOptions{}.heartbeat, std::chrono::seconds(limits::kHeartbeatS));
  EXPECT_EQ(SessionOptions{}.silence_deadline, std::chrono::seconds(limits::kSilenceDeadlineS));
  EXPECT_GE(limits::kSilenceDeadlineS, 3 * limits::kHeartbeatS);
}

TEST(Session, SilentPeerIsFoundDead) {
  FakeWorker worker;
  SessionOptions options;
  options.heartbeat = std::chrono::milliseconds(10);
  options.silence_deadline = std::chrono::milliseconds(100);
  auto session = start(worker, options);
  EXPECT_EQ(call_elsewhere(*session, site(1)).get().returned, kResultPeerGone);
  EXPECT_EQ(session->death().code(), Code::kPeerGone);
}

TEST(Session, HeartbeatsGoOutWhileNothingElseHappens) {
  FakeWorker worker;
  SessionOptions options = quiet();
  options.heartbeat = std::chrono::milliseconds(5);
  auto session = start(worker, options);
  EXPECT_TRUE(worker.wait_for_frames(protocol::FrameKind::kHeartbeat, 3));
}

TEST(Session, DeferredErrorIsToldOncePerLane) {
  FakeWorker worker;
  auto session = start(worker);
  Lane& lane = *Lane::current();
  std::promise<void> other_begins;
  std::promise<void> other_goes_on;
  std::future<void> go_on = other_goes_on.get_future();
  auto other = std::async(std::launch::async, [&] {
    EXPECT_EQ(session->post(*Lane::current(), site(1), ByteView()), 0);
    other_begins.set_value();
    go_on.wait();
    Reply reply;
    std::vector<int> results;
    for (int i = 0; i < 2; ++i) {
      results.push_back(session->call(*Lane::current(), site(3), ByteView(), &reply));
      EXPECT_EQ(reply.result, 0);
    }
    return results;
  });
  other_begins.get_future().wait();
  worker.next();
  ASSERT_EQ(session->post(lane, site(2), ByteView()), 0);
  worker.call_error(worker.next(), kInvalidImage);

  // What the issuing lane's fences return; the worker answers on a thread of its own.
  auto answer = [&worker](int count) {
    return std::async(std::launch::async, [&worker, count] {
      for (int i = 0; i < count; ++i) worker.reply(worker.next(), 0, text("done"));
    });
  };
  auto answers = answer(2);
  Reply reply;
  EXPECT_EQ(session->call(lane, site(3), ByteView(), &reply), kInvalidImage);
  EXPECT_EQ(reply.result, 0) << "the fence has done its own work";
  EXPECT_EQ(reply.payload.size(), 4u);
  EXPECT_EQ(session->call(lane, site(3), ByteView(), &reply), 0);
  answers.get();

  answers = answer(2);
  other_goes_on.set_value();
  EXPECT_EQ(other.get(), (std::vector<int>{kInvalidImage, 0}));
  answers.get();

  // A thread that comes later knows nothing of it.
  answers = answer(1);
  EXPECT_EQ(call_elsewhere(*session, site(3)).get().returned, 0);
  answers.get();
}

TEST(Session, StickyErrorIsReturnedByEveryCallOnItsContext) {
  FakeWorker worker;
  auto session = start(worker);
  Lane& lane = *Lane::current();
  ASSERT_EQ(session->post(lane, site(2), ByteView()), 0);
  worker.call_error(worker.next(), kIllegalAddress, true);
  auto fence = call_elsewhere(*session, site(3, kContext + 1));
  worker.reply(worker.next());
  EXPECT_EQ(fence.get().returned, 0) << "another context lives on";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(session->post(lane, site(2), ByteView()), kIllegalAddress);
    EXPECT_EQ(session->health(kContext), kIllegalAddress);
  }
  EXPECT_EQ(session->health(kContext + 1), 0);
  EXPECT_TRUE(session->alive());
}

TEST(Session, RepeatedItemIsDroppedAndAGapEndsTheSession) {
  FakeWorker worker;
  auto session = start(worker);
  Lane& lane = *Lane::current();
  ASSERT_EQ(session->post(lane, site(2), ByteView()), 0);
  const FakeWorker::Record record = worker.next();
  auto fence = call_elsewhere(*session, site(3));
  const FakeWorker::Record asked = worker.next();
  worker.call_error(record, kInvalidImage);
  worker.reply(asked);
  EXPECT_EQ(fence.get().returned, kInvalidImage);

  // Number 1 again, now as a sticky error, which the lane would notice.
  protocol::ReplyHeader again;
  again.kind = protocol::ReplyKind::kCallError;
  again.flags = protocol::kReplyFlagSticky;
  again.result = kIllegalAddress;
  again.context = kContext;
  again.call_sequence = record.header.sequence;
  again.sequence = 1;
  worker.send_numbered_item(again);
  fence = call_elsewhere(*session, site(3));
  worker.reply(worker.next());
  EXPECT_EQ(fence.get().returned, 0);
  EXPECT_EQ(session->health(kContext), 0);

  fence = call_elsewhere(*session, site(3));
  worker.next();
  again.sequence = 9;
  worker.send_numbered_item(again);
  EXPECT_EQ(fence.get().returned, kResultPeerGone);
  EXPECT_EQ(session->death().code(), Code::kProtocol);
}

TEST(Session, AcknowledgementOfWhatWasNeverSentEndsTheSession) {
  FakeWorker worker;
  auto session = start(worker);
  auto fence = call_elsewhere(*session, site(3));
  worker.next();
  worker.acknowledge(5);
  EXPECT_EQ(fence.get().returned, kResultPeerGone);
  EXPECT_EQ(session->death().code(), Code::kProtocol);
}

TEST(Session, SyncMakesEveryPostAFence) {
  FakeWorker worker;
  SessionOptions options = quiet();
  options.every_call_is_a_fence = true;
  auto session = start(worker, options);
  auto post = std::async(std::launch::async, [&session] {
    return session->post(*Lane::current(), site(2), ByteView());
  });
  const FakeWorker::Record record = worker.next();
  EXPECT_NE(record.header.flags & protocol::kFlagFence, 0);
  worker.reply(record, kInvalidImage);
  EXPECT_EQ(post.get(), kInvalidImage);
}

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

TEST(Session, OutputStandsInOrderWithThePrintfsOfTheProgram) {
  char* said = nullptr;
  std::size_t bytes = 0;
  std::FILE* const out = open_memstream(&said, &bytes);
  FakeWorker worker;
  SessionOptions options = quiet();
  options.output = out;
  auto session = start(worker, options);
  std::fputs("before, ", out);
  auto fence = call_elsewhere(*session, site(3));
  const FakeWorker::Record record = worker.next();
  protocol::ReplyHeader header;
  header.kind = protocol::ReplyKind::kOutput;
  worker.send_item(header, text("device, "));
  worker.reply(record);
  EXPECT_EQ(fence.get().returned, 0);
  std::fputs("after", out);
  std::fclose(out);
  EXPECT_STREQ(said, "before, device, after");
  free(said);  // NOLINT: as open_memstream wants it.
}

// A program may print several pieces as one (flockfile) and synchronise meanwhile, while another of
// its threads waits for stdout inside a fence.
TEST(Session, OutputNeverWaitsForAThreadThatHoldsStdout) {
  FakeWorker worker;
  SessionOptions options = quiet();
  std::FILE* const out = std::tmpfile();
  options.output = out;
  auto session = start(worker, options);
  flockfile(out);
  auto fence = call_elsewhere(*session, site(3));
  const FakeWorker::Record first = worker.next();
  protocol::ReplyHeader header;
  header.kind = protocol::ReplyKind::kOutput;
  worker.send_item(header, text("device"));
  worker.reply(first);
  auto answering = std::async(std::launch::async, [&] { worker.reply(worker.next()); });
  Reply reply;
  EXPECT_EQ(session->call(*Lane::current(), site(4), ByteView(), &reply), 0);
  answering.get();
  EXPECT_EQ(std::ftell(out), 6) << "what came before our fence is out when it returns";
  funlockfile(out);
  EXPECT_EQ(fence.get().returned, 0);
  std::fclose(out);
}

TEST(Session, ForkedChildSendsNothingAndClosesTheDescriptors) {
  FakeWorker worker;
  auto session = start(worker);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  fork_guard::watch(ends[1]);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool refused =
        session->post(*Lane::current(), site(1), ByteView()) == kResultNotInitialized &&
        session->health(0) == kResultNotInitialized;
    const bool closed = write(ends[1], "", 1) < 0;
    session.reset();
    _exit(refused && closed ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  fork_guard::forget(ends[1]);
  EXPECT_EQ(write(ends[1], "", 1), 1) << "the parent's stays open";
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(session->post(*Lane::current(), site(8), ByteView()), 0);
  EXPECT_EQ(worker.next().header.opcode, 8);
}

TEST(Session, CountsCallsAndFences) {
  FakeWorker worker;
  SessionOptions options = quiet();
  options.statistics = true;
  auto session = start(worker, options);
  ASSERT_EQ(session->post(*Lane::current(), site(2), ByteView()), 0);
  worker.next();
  auto fence = call_elsewhere(*session, site(3));
  worker.reply(worker.next());
  EXPECT_EQ(fence.get().returned, 0);
  const std::vector<Stats::Row> rows = session->stats().rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].opcode, 3);
  EXPECT_EQ(rows[0].fences, 1u);
  EXPECT_EQ(rows[1].calls, 1u);
  EXPECT_EQ(rows[1].fences, 0u);
}

TEST(Session, RecordOverItsBoundIsRefused) {
  FakeWorker worker;
  auto session = start(worker);
  const Bytes payload(protocol::kRecordPayloadBytesMax + 1);
  Lane& lane = *Lane::current();
  EXPECT_EQ(session->post(lane, site(1), ByteView(payload)), kResultInvalidValue);
  EXPECT_EQ(session->post(lane, site(1), ByteView(payload).first(payload.size() - 1)), 0);
  EXPECT_EQ(worker.next().payload.size(), protocol::kRecordPayloadBytesMax);
}

}  // namespace
}  // namespace gpurun::client
