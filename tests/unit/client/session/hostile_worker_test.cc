// Hostile worker: a worker cannot make the client write anywhere except where a call said, and
// within its size. It cannot make the client call a function that no graph has. Endless
// repetitions, or messages about calls that do not exist, cost at most the session.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/printable.h"
#include "client/early_answers/deferred_errors.h"
#include "client/session/device_output.h"
#include "client/session/graph_host.h"
#include "driver_abi/opcodes.h"
#include "tests/unit/client/session/session_under_test.h"

namespace gpurun::client {
namespace {

using protocol::ReplyHeader;
using protocol::ReplyKind;

constexpr std::size_t kWidth = 8, kLines = 4, kPitch = 24;

ReplyHeader item(ReplyKind kind, std::uint64_t subject) {
  ReplyHeader header;
  header.kind = kind;
  header.subject = subject;
  return header;
}

// Whether the worker's last message ended the session. Otherwise its goodbye, which follows, does.
bool ends(FakeWorker& worker, Session& session) {
  worker.goodbye("all of it was believed");
  Reply reply;
  return session.call(*Lane::current(), site(3), ByteView(), &reply) == kResultPeerGone &&
         session.death().code() == Code::kProtocol;
}

// A program with a copy of each direction and a function in its graphs. Memory that the copy must
// not change surrounds its target.
struct Graphs {
  Graphs() {
    GraphHost::Operation in, out, call;
    in.to = {reinterpret_cast<std::uint64_t>(memory + 64), kPitch, 0, kWidth, kLines, 1};
    out.from = in.to;
    call.function = [](void* count) { ++*static_cast<std::atomic<int>*>(count); };
    call.user = &calls;
    session = start(worker);
    copy_in = session->graphs().add(in);
    copy_out = session->graphs().add(out);
    function = session->graphs().add(call);
    std::memset(memory, 7, sizeof memory);
  }
  // The number of changed bytes, within the target or outside it.
  std::size_t changed(bool within) const {
    std::size_t count = 0;
    for (std::size_t at = 0; at < sizeof memory; ++at) {
      const std::size_t offset = at - 64;  // Huge for a place before the target.
      const bool inside = offset < kLines * kPitch && offset % kPitch < kWidth;
      if (memory[at] != 7 && inside == within) ++count;
    }
    return count;
  }

  char memory[64 + kLines * kPitch + 64];
  std::atomic<int> calls{0};
  std::uint64_t copy_in = 0, copy_out = 0, function = 0;
  FakeWorker worker;
  std::unique_ptr<Session> session;
};

Bytes bytes_at(std::uint64_t offset, std::size_t count) {
  Bytes payload(sizeof offset + count, std::byte{9});
  std::memcpy(payload.data(), &offset, sizeof offset);
  return payload;
}

TEST(HostileWorker, CannotWriteOutsideGraphCopyTarget) {
  {
    Graphs graphs;
    graphs.worker.send_item(item(ReplyKind::kHostBytes, graphs.copy_in), bytes_at(6, 26));
    graphs.worker.send_item(item(ReplyKind::kHostBytes, graphs.copy_in), bytes_at(32, 0));
    graphs.worker.send_item(item(ReplyKind::kHostGone, graphs.copy_in));
    auto fence = call_elsewhere(*graphs.session, site(3));
    graphs.worker.reply(graphs.worker.next());
    ASSERT_EQ(fence.get().returned, 0);
    EXPECT_EQ(graphs.changed(true), 26u);
    EXPECT_EQ(graphs.changed(false), 0u);
    // Nothing is written for an operation that has ended.
    graphs.worker.send_item(item(ReplyKind::kHostBytes, graphs.copy_in), bytes_at(0, 1));
    EXPECT_TRUE(ends(graphs.worker, *graphs.session));
    EXPECT_EQ(graphs.changed(true), 26u);
  }
  constexpr std::uint64_t kEnd = kWidth * kLines;
  const Bytes lies[] = {bytes_at(kEnd, 1),
                        bytes_at(kEnd - 1, 2),
                        bytes_at(kEnd + 1, 0),
                        bytes_at(0, kEnd + 1),
                        bytes_at(~0ull, 1),
                        bytes_at(~0ull - 7, 16),
                        bytes_at(1ull << 63, kEnd),
                        Bytes(7),
                        Bytes()};
  for (const Bytes& lie : lies) {
    Graphs graphs;
    graphs.worker.send_item(item(ReplyKind::kHostBytes, graphs.copy_in), lie);
    EXPECT_TRUE(ends(graphs.worker, *graphs.session)) << lie.size();
    EXPECT_EQ(graphs.changed(true) + graphs.changed(false), 0u);
  }
  for (const int wrong : {0, 1, 2, 3}) {
    Graphs graphs;
    const std::uint64_t subjects[] = {graphs.copy_out, graphs.function, 0, 99};
    graphs.worker.send_item(item(ReplyKind::kHostBytes, subjects[wrong]), bytes_at(0, 1));
    EXPECT_TRUE(ends(graphs.worker, *graphs.session)) << wrong;
    EXPECT_EQ(graphs.changed(true) + graphs.changed(false), 0u);
  }
}

TEST(HostileWorker, CannotCallUnknownGraphFunction) {
  const std::uint64_t turn = 5;
  for (const std::uint64_t subject : {std::uint64_t{0}, std::uint64_t{99}, ~std::uint64_t{0}}) {
    Graphs graphs;
    graphs.worker.send_item(item(ReplyKind::kHostTurn, subject), bytes_of(turn));
    EXPECT_TRUE(ends(graphs.worker, *graphs.session));
    EXPECT_EQ(graphs.calls, 0);
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{9}}) {
    Graphs graphs;
    const Bytes payload(size);
    graphs.worker.send_item(item(ReplyKind::kHostTurn, graphs.function), payload);
    EXPECT_TRUE(ends(graphs.worker, *graphs.session));
    EXPECT_EQ(graphs.calls, 0);
  }
  Graphs graphs;
  graphs.worker.send_item(item(ReplyKind::kHostGone, graphs.function));
  graphs.worker.send_item(item(ReplyKind::kHostTurn, graphs.function), bytes_of(turn));
  EXPECT_TRUE(ends(graphs.worker, *graphs.session));
  EXPECT_EQ(graphs.calls, 0);
  Graphs twice;
  twice.worker.send_item(item(ReplyKind::kHostGone, twice.copy_out));
  twice.worker.send_item(item(ReplyKind::kHostGone, twice.copy_out));
  EXPECT_TRUE(ends(twice.worker, *twice.session));
}

// The turn waits for copies that come over bulk connections. They may never arrive.
TEST(HostileWorker, MissingCopyTimesOutAfterSilenceDeadline) {
  std::atomic<int> calls{0};
  FakeWorker worker;
  SessionOptions options = quiet();
  options.heartbeat = std::chrono::milliseconds(50);
  options.silence_deadline = std::chrono::seconds(1);
  const auto session = start(worker, options);
  GraphHost::Operation function;
  function.function = [](void* count) { ++*static_cast<std::atomic<int>*>(count); };
  function.user = &calls;
  ReplyHeader turn = item(ReplyKind::kHostTurn, session->graphs().add(function));
  turn.watermark = 1;
  worker.send_item(turn, bytes_of(std::uint64_t{5}));
  Reply reply;
  EXPECT_EQ(session->call(*Lane::current(), site(3), ByteView(), &reply), kResultPeerGone);
  EXPECT_EQ(session->death().code(), Code::kDeadline);
  EXPECT_NE(session->death().message().find("completion 1 of a copy did not come"),
            std::string::npos)
      << session->death().message();
  EXPECT_EQ(calls, 0);
}

TEST(HostileWorker, EndlessGraphTurnsEndSession) {
  std::atomic<bool> open{false};  // Outlives the session, which has a thread that reads it.
  FakeWorker worker;
  auto session = start(worker);
  GraphHost::Operation stands;
  stands.function = [](void* gate) { static_cast<std::atomic<bool>*>(gate)->wait(false); };
  stands.user = &open;
  const std::uint64_t number = session->graphs().add(stands);
  const std::uint64_t turn = 1;
  constexpr std::size_t kAtOnce = 256;
  std::uint64_t sent = 0;
  while (sent <= GraphHost::kTurnsMax) {
    Bytes items;
    const std::uint64_t first = sent + 1;
    for (std::size_t i = 0; i < kAtOnce; ++i) {
      ReplyHeader header = item(ReplyKind::kHostTurn, number);
      header.sequence = ++sent;
      header.payload_bytes = sizeof turn;
      header.bytes = static_cast<std::uint32_t>(protocol::reply_bytes(sizeof turn));
      const std::size_t at = items.size();
      items.resize(at + header.bytes);
      std::memcpy(items.data() + at, &header, sizeof header);
      std::memcpy(items.data() + at + sizeof header, &turn, sizeof turn);
    }
    worker.send_frame(worker.log(), protocol::FrameKind::kReplies, items, first);
  }
  EXPECT_TRUE(ends(worker, *session));
  open = true;
  open.notify_all();
}

TEST(HostileWorker, MessagesAboutUnknownCallsEndSession) {
  const auto refused = [](auto change) {
    FakeWorker worker;
    auto session = start(worker);
    auto fence = call_elsewhere(*session, site(3));
    const FakeWorker::Record asked = worker.next();
    ReplyHeader header;
    header.kind = ReplyKind::kReply;
    header.lane = asked.header.lane;
    header.call_sequence = asked.header.sequence;
    change(header);
    worker.send_item(header);
    worker.goodbye("all of it was believed");
    return fence.get().returned == kResultPeerGone && session->death().code() == Code::kProtocol;
  };
  EXPECT_TRUE(refused([](ReplyHeader& header) { ++header.call_sequence; }));
  EXPECT_TRUE(refused([](ReplyHeader& header) { header.call_sequence = ~0ull; }));
  EXPECT_TRUE(refused([](ReplyHeader& header) { header.lane = limits::kLanesMax - 1; }));
  EXPECT_TRUE(refused([](ReplyHeader& header) { header.lane = ~0u; }));
  EXPECT_TRUE(refused([](ReplyHeader& header) { header.kind = static_cast<ReplyKind>(0); }));
  EXPECT_TRUE(refused([](ReplyHeader& header) { header.kind = static_cast<ReplyKind>(99); }));
  EXPECT_TRUE(refused([](ReplyHeader& header) { header.kind = ReplyKind::kCallError; }));
}

TEST(HostileWorker, ExcessLossesOfUnknownContextsEndSession) {
  FakeWorker worker;
  auto session = start(worker);
  ReplyHeader lost = item(ReplyKind::kCallError, 0);
  lost.flags = protocol::kReplyFlagSticky;
  lost.result = kIllegalAddress;
  for (std::size_t count = 0; count <= DeferredErrors::kStickyMax; ++count) {
    lost.context = 1000 + count;
    worker.send_item(lost);
  }
  EXPECT_TRUE(ends(worker, *session));
}

TEST(HostileWorker, BoundsUnreadOutput) {
  std::size_t written = 0;
  cookie_io_functions_t counts{};
  counts.write = [](void* sum, const char*, std::size_t bytes) {
    *static_cast<std::size_t*>(sum) += bytes;
    return static_cast<ssize_t>(bytes);
  };
  std::FILE* const to = fopencookie(&written, "w", counts);
  ASSERT_NE(to, nullptr);
  DeviceOutput output(to);
  const Bytes piece(std::size_t{8} << 20);
  for (std::size_t said = 0; said < 2 * DeviceOutput::kBytesMax; said += piece.size()) {
    output.keep(piece);
  }
  output.write_kept();
  std::fclose(to);
  EXPECT_EQ(written, DeviceOutput::kBytesMax);
}

// The worker lives and has the call, so nothing else would end the wait.
TEST(HostileWorker, AcknowledgedCallWithoutReplyEndsSession) {
  FakeWorker worker;
  auto session = start(worker);
  auto fence = call_elsewhere(*session, site(3));
  const auto call = worker.next();
  worker.acknowledge(call.header.sequence);
  worker.send_frame(worker.log(), protocol::FrameKind::kHeartbeat, {}, 2);  // It owes one reply.
  worker.send_frame(worker.log(), protocol::FrameKind::kHeartbeat, {}, 0);  // An older release.
  worker.reply(call);
  EXPECT_EQ(fence.get().returned, 0);
  worker.send_frame(worker.log(), protocol::FrameKind::kHeartbeat, {}, 1);  // It owes no reply.
  auto next = call_elsewhere(*session, site(3));
  const auto taken = worker.next();
  worker.send_frame(worker.log(), protocol::FrameKind::kHeartbeat, {}, 1);  // It has not received
                                                                            // the call yet.
  worker.acknowledge(taken.header.sequence);
  worker.send_frame(worker.log(), protocol::FrameKind::kHeartbeat, {}, 1);
  EXPECT_EQ(next.get().returned, kResultPeerGone);
  EXPECT_EQ(session->death().code(), Code::kProtocol);
  EXPECT_NE(session->death().message().find("will not send the reply"), std::string::npos);
}

TEST(HostileWorker, RepeatedReplyEndsSession) {
  FakeWorker worker;
  auto session = start(worker);
  auto first = call_elsewhere(*session, site(3));
  const auto call = worker.next();
  worker.reply(call);
  EXPECT_EQ(first.get().returned, 0);
  auto second = call_elsewhere(*session, site(3));
  worker.next();
  worker.reply(call);  // A repeated reply would take the second call's place.
  EXPECT_EQ(second.get().returned, kResultPeerGone);
  EXPECT_EQ(session->death().code(), Code::kProtocol);
}

TEST(HostileWorker, GoodbyeReasonIsMadePrintable) {
  FakeWorker worker;
  auto session = start(worker);
  auto fence = call_elsewhere(*session, site(3));
  worker.next();
  worker.goodbye("a\x1b[2Jb\nc\x7f\rd\u009b2J");
  EXPECT_EQ(fence.get().returned, kResultPeerGone);
  const std::string said = session->death().message();
  EXPECT_NE(said.find("b c"), std::string::npos) << said;
  EXPECT_TRUE(is_printable(said)) << said;
}

TEST(HostileWorker, BoundsAndSanitisesCallMessages) {
  FakeWorker worker;
  auto session = start(worker);
  testing::internal::CaptureStderr();
  ReplyHeader words = item(ReplyKind::kOutput, 1);
  words.flags = protocol::kReplyFlagErrors;
  const std::string text = "\x1b[2J\u009b2J" + std::string(2000, '\n');
  for (int i = 0; i < 40; ++i) worker.send_item(words, byte_view(text.data(), text.size()));
  auto fence = call_elsewhere(*session, site(3));
  worker.reply(worker.next());
  EXPECT_EQ(fence.get().returned, 0);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 16) << said.substr(0, 3000);
  EXPECT_LT(said.size(), 16u * 1200);
  EXPECT_EQ(said.find('\x1b'), std::string::npos);
  EXPECT_EQ(said.find("\u009b"), std::string::npos);
}

}  // namespace
}  // namespace gpurun::client
