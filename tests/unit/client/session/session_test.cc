// Session: keeps the order of all threads' calls, sends without timers, brings each reply to its
// lane, and reports each failure once. No thread keeps waiting when the peer dies.
#include "client/session/session.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "client/process/fork_guard.h"
#include "client/stats/stats.h"
#include "tests/unit/client/session/session_under_test.h"

namespace gpurun::client {
namespace {

TEST(Session, PostsKeepEachThreadsOrderWithoutGaps) {
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
    const FakeWorker::Record record = worker.next();  // next() checks the numbers.
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

// A wake-up of the sender for an acknowledgement would make some fences several times slower.
TEST(Session, FencesAcknowledgeRepliesInTheirOwnFrames) {
  FakeWorker worker;
  auto session = start(worker);
  constexpr std::uint64_t kFences = 300;
  std::thread caller([&session] {
    for (std::uint64_t i = 0; i < kFences; ++i) {
      Reply reply;
      EXPECT_EQ(session->call(*Lane::current(), site(1), ByteView(), &reply), 0);
    }
  });
  for (std::uint64_t i = 0; i < kFences; ++i) {
    const FakeWorker::Record record = worker.next();
    // The waiting thread gets a reply before the reply counts as received.
    EXPECT_GE(worker.items_acknowledged() + 1, i);
    worker.reply(record);
  }
  caller.join();
  EXPECT_EQ(worker.frames_of(protocol::FrameKind::kAcknowledge), 0);
}

TEST(Session, SenderAcknowledgesItemsWithoutFence) {
  FakeWorker worker;
  auto session = start(worker);
  constexpr std::uint64_t kItems = 200;
  std::vector<FakeWorker::Record> records;
  for (std::uint64_t i = 0; i < kItems; ++i) {
    ASSERT_EQ(session->post(*Lane::current(), site(1), ByteView()), 0);
    records.push_back(worker.next());
  }
  for (const FakeWorker::Record& record : records) worker.call_error(record, kInvalidImage);
  while (worker.items_acknowledged() < kItems / 2) {
    const int before = worker.frames_of(protocol::FrameKind::kAcknowledge);
    ASSERT_TRUE(worker.wait_for_frames(protocol::FrameKind::kAcknowledge, before + 1));
  }
}

TEST(Session, PostsReturnWhileWorkerReadsNothing) {
  FakeWorker worker;
  auto session = start(worker);
  const Bytes payload(1024);  // Together more than the transport holds.
  static_assert(1000 * 1024 > 2 * transport::loopback::kQueueBytes);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(session->post(*Lane::current(), site(1), ByteView(payload)), 0);
  }
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(worker.next().payload.size(), payload.size());
}

TEST(Session, FullLogWaitsForAcknowledgement) {
  FakeWorker worker;
  SessionOptions options = quiet();
  options.log_bytes = std::size_t{512} << 10;
  auto session = start(worker, options);
  constexpr int kPosts = 2000;  // Several times the size of the ring.
  std::thread poster([&session] {
    const Bytes payload(1000);
    for (int i = 0; i < kPosts; ++i) {
      EXPECT_EQ(session->post(*Lane::current(), site(1), ByteView(payload)), 0);
    }
  });
  for (int i = 0; i < kPosts; ++i) worker.acknowledge(worker.next().header.sequence);
  poster.join();
}

TEST(Session, PostIsSentWithoutFurtherCalls) {
  FakeWorker worker;
  auto session = start(worker);
  // Repeats the step from busy to idle, where a wake-up could be lost.
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(session->post(*Lane::current(), site(7), ByteView()), 0);
    ASSERT_EQ(worker.next().header.opcode, 7) << "post " << i;
  }
}

TEST(Session, PeerLossWakesAllWaitersAndLogsOnce) {
  FakeWorker worker;
  SessionOptions options = quiet();
  options.log_bytes = std::size_t{512} << 10;
  auto session = start(worker, options);
  testing::internal::CaptureStderr();
  std::vector<std::future<Called>> fences;
  for (int i = 0; i < 4; ++i) fences.push_back(call_elsewhere(*session, site(1)));
  for (int i = 0; i < 4; ++i) worker.next();
  auto poster = std::async(std::launch::async, [&session] {  // In the end it waits for room.
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
  EXPECT_NE(said.find("fake:1 is gone: the worker was killed by signal 9"), std::string::npos)
      << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// Tests with shorter times cover what happens at these bounds: below, and in
// tests/unit/server/worker/execution/decoder_test.cc.
TEST(Session, DefaultTimesMatchProtocolLimits) {
  EXPECT_EQ(SessionOptions{}.heartbeat, std::chrono::seconds(limits::kHeartbeatS));
  EXPECT_EQ(SessionOptions{}.silence_deadline, std::chrono::seconds(limits::kSilenceDeadlineS));
  EXPECT_GE(limits::kSilenceDeadlineS, 3 * limits::kHeartbeatS);
}

TEST(Session, SilentPeerTimesOut) {
  FakeWorker worker;
  SessionOptions options;
  options.heartbeat = std::chrono::milliseconds(10);
  options.silence_deadline = std::chrono::milliseconds(100);
  auto session = start(worker, options);
  EXPECT_EQ(call_elsewhere(*session, site(1)).get().returned, kResultPeerGone);
  EXPECT_EQ(session->death().code(), Code::kDeadline);
}

TEST(Session, SendsHeartbeatsWhileIdle) {
  FakeWorker worker;
  SessionOptions options = quiet();
  options.heartbeat = std::chrono::milliseconds(5);
  auto session = start(worker, options);
  EXPECT_TRUE(worker.wait_for_frames(protocol::FrameKind::kHeartbeat, 3));
}

TEST(Session, RepeatedItemIsDroppedAndGapEndsSession) {
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

  // Number 1 again, now as a sticky error. The lane would notice its delivery.
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

TEST(Session, AcknowledgementOfUnsentRecordEndsSession) {
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

TEST(Session, DeviceOutputKeepsOrderWithHostOutput) {
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

// A program may lock stdout (flockfile), print several pieces and synchronize meanwhile, while
// another of its threads waits for stdout inside a fence.
TEST(Session, DeviceOutputDoesNotWaitForStdoutLock) {
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

TEST(Session, ForkedChildSendsNothingAndClosesDescriptors) {
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
  const Stats::Batches batches = session->stats().batches();
  EXPECT_EQ(batches.records, 2u);
  EXPECT_EQ(batches.bytes, 2 * protocol::record_bytes(0));
  EXPECT_EQ(batches.full_logs, 0u);
  // A waiting thread sends its own calls. At most the first call needed the sender.
  EXPECT_LE(batches.sender_wakes, 1u);
}

TEST(Session, CountsWaitsForRoomInTheLog) {
  FakeWorker worker;
  SessionOptions options = quiet();
  options.statistics = true;
  options.log_bytes = std::size_t{512} << 10;
  auto session = start(worker, options);
  std::thread poster([&session] {
    const Bytes payload(1000);
    for (int i = 0; i < 600; ++i) {  // More than the ring holds.
      EXPECT_EQ(session->post(*Lane::current(), site(1), ByteView(payload)), 0);
    }
  });
  while (session->stats().batches().full_logs == 0) std::this_thread::yield();
  EXPECT_GE(session->stats().rows()[0].calls, 400u);
  for (int i = 0; i < 600; ++i) {
    const FakeWorker::Record record = worker.next();
    if (i >= 300) worker.acknowledge(record.header.sequence);
  }
  poster.join();
  EXPECT_GT(session->stats().batches().full_log_waited.count(), 0);
}

TEST(Session, OversizedRecordIsRefused) {
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
