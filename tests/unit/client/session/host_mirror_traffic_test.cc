// HostMirrorTraffic: the program's writes precede the work that may read them. The device's writes
// are there before the program learns that work is complete. A worker changes nothing but the bytes
// of such memory, and one that lies ends the session.
#include "client/session/host_mirror_traffic.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <future>

#include "driver_abi/opcodes.h"
#include "protocol/calls/host_mirror.h"
#include "tests/unit/client/session/session_under_test.h"

namespace gpurun::client {
namespace {

using protocol::HostMirrorChanges;
using protocol::HostMirrorHead;
using protocol::HostMirrorPiece;
using protocol::HostMirrorRange;
using protocol::HostMirrorStep;

constexpr std::size_t kBytes = 1 << 20;

// A session with mirrored memory, larger than what is polled.
class HostMirrorTraffics : public ::testing::Test {
 protected:
  HostMirrorTraffics()
      : memory_(static_cast<char*>(
            mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        session_(start(worker_)) {
    EXPECT_TRUE(session_->add_host_mirror(address(), kBytes, bytes(), true));
    session_->begin_mirrored(address(), kBytes, false);
    session_->begin_device_reach();
  }
  ~HostMirrorTraffics() override {
    session_.reset();
    munmap(memory_, kBytes);
  }

  std::byte* bytes() const { return reinterpret_cast<std::byte*>(memory_); }
  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(memory_); }
  CallSite launch_site(Handle stream = protocol::kStreamLegacy) {
    CallSite launch = site(driver_abi::opcode::cuLaunchKernel);
    launch.form = protocol::Form::kLaunch;
    launch.order = protocol::Order::kStream;
    launch.stream = stream;
    return launch;
  }
  void launch(Handle stream = protocol::kStreamLegacy) {
    EXPECT_EQ(
        session_->post(*Lane::current(), launch_site(stream), bytes_of(protocol::LaunchPayload())),
        0);
  }
  static HostMirrorStep step_of(const FakeWorker::Record& record) {
    HostMirrorHead head;
    EXPECT_EQ(record.header.opcode, driver_abi::opcode::cuMemHostGetDevicePointer_v2);
    EXPECT_GE(record.payload.size(), sizeof head);
    std::memcpy(&head, record.payload.data(), sizeof head);
    return head.step;
  }
  static Bytes changes(std::uint64_t next, HostMirrorPiece piece, std::size_t bytes, int value) {
    const HostMirrorChanges head{next};
    Bytes payload(sizeof head + sizeof piece + bytes, static_cast<std::byte>(value));
    std::memcpy(payload.data(), &head, sizeof head);
    std::memcpy(payload.data() + sizeof head, &piece, sizeof piece);
    return payload;
  }
  // A wait to which the worker answers, and then `answer` to the question for changes.
  Called wait(int result, const Bytes& answer) {
    auto fence = call_elsewhere(*session_, site(3));
    worker_.reply(worker_.next());
    const auto question = worker_.next();
    EXPECT_EQ(step_of(question), HostMirrorStep::kCollect);
    worker_.reply(question, result, answer);
    return fence.get();
  }

  // Calls of a stream that show what is complete there.
  static CallSite synchronize(Handle stream) {
    CallSite wait = site(driver_abi::opcode::cuStreamSynchronize);
    wait.stream = stream;
    wait.waits = Waits::kForStream;
    return wait;
  }
  static CallSite query(Handle stream) {
    CallSite question = site(driver_abi::opcode::cuStreamQuery);
    question.stream = stream;
    return question;
  }
  // Makes the call and one beside the work, to which the worker answers. Returns whether the first
  // one also asked for changes.
  bool asks(const CallSite& what) {
    constexpr std::uint16_t kBeside = 4;
    CallSite beside = site(kBeside);
    beside.flags = protocol::kFlagPassesStreams;
    beside.work = Work::kNone;
    auto both = std::async(std::launch::async, [this, what, beside] {
      Reply reply;
      EXPECT_EQ(session_->call(*Lane::current(), what, ByteView(), &reply), 0);
      EXPECT_EQ(session_->call(*Lane::current(), beside, ByteView(), &reply), 0);
    });
    worker_.reply(worker_.next());
    auto next = worker_.next();
    const bool asked = next.header.opcode != kBeside;
    if (asked) {
      EXPECT_EQ(step_of(next), HostMirrorStep::kCollect);
      worker_.reply(next, 0, bytes_of(HostMirrorChanges()));
      next = worker_.next();
    }
    worker_.reply(next);
    both.get();
    return asked;
  }

  char* const memory_;
  FakeWorker worker_;
  std::unique_ptr<Session> session_;
};

TEST_F(HostMirrorTraffics, WritesPrecedeTheWorkThatMayReadThem) {
  memory_[5000] = 9;
  launch();
  const auto written = worker_.next();
  ASSERT_EQ(step_of(written), HostMirrorStep::kWrite);
  EXPECT_EQ(written.header.order, protocol::Order::kImmediate);
  ByteView pieces = ByteView(written.payload).subspan(sizeof(HostMirrorHead));
  HostMirrorPiece piece;
  ByteView lines;
  ASSERT_TRUE(protocol::next_piece(&pieces, &piece, &lines));
  EXPECT_EQ(piece.address, address() + 5000 / 64 * 64);
  EXPECT_EQ(lines[5000 % 64], std::byte{9});
  EXPECT_EQ(worker_.next().header.opcode, driver_abi::opcode::cuLaunchKernel);
  launch();
  EXPECT_EQ(worker_.next().header.opcode, driver_abi::opcode::cuLaunchKernel) << "sent once";
}

TEST_F(HostMirrorTraffics, ChangesAreThereWhenTheWaitReturns) {
  launch();
  worker_.next();
  const HostMirrorPiece piece{address() + 640, 64, 0};
  auto fence = call_elsewhere(*session_, site(3));
  worker_.reply(worker_.next());
  const auto question = worker_.next();
  ASSERT_EQ(step_of(question), HostMirrorStep::kCollect);
  HostMirrorRange range;
  ASSERT_EQ(question.payload.size(), sizeof(HostMirrorHead) + sizeof range);
  std::memcpy(&range, question.payload.data() + sizeof(HostMirrorHead), sizeof range);
  EXPECT_EQ(range.address, address());
  EXPECT_EQ(range.bytes, kBytes);
  EXPECT_EQ(fence.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  worker_.reply(question, 0, changes(address() + 704, piece, 64, 5));
  const auto more = worker_.next();
  HostMirrorHead head;
  std::memcpy(&head, more.payload.data(), sizeof head);
  EXPECT_EQ(head.from, address() + 704);
  worker_.reply(more, 0, bytes_of(HostMirrorChanges()));
  EXPECT_EQ(fence.get().returned, 0);
  EXPECT_EQ(memory_[640], 5);
  EXPECT_EQ(memory_[639], 0);
  EXPECT_EQ(memory_[704], 0);
}

// Work that was issued before the memory existed may still write to it.
TEST_F(HostMirrorTraffics, RangeIsTakenAtOnceAndAskedForByTheNextWait) {
  auto taken = std::async(std::launch::async, [&] {
    return session_->take_mirrored(*Lane::current(), address() + 640, 128);
  });
  const auto question = worker_.next();
  ASSERT_EQ(step_of(question), HostMirrorStep::kCollect);
  HostMirrorRange range;
  ASSERT_EQ(question.payload.size(), sizeof(HostMirrorHead) + sizeof range);
  std::memcpy(&range, question.payload.data() + sizeof(HostMirrorHead), sizeof range);
  EXPECT_EQ(range.address, address() + 640);
  EXPECT_EQ(range.bytes, 128u);
  const HostMirrorPiece piece{address() + 640, 64, 0};
  worker_.reply(question, 0, changes(address() + 704, piece, 64, 5));
  worker_.reply(worker_.next(), 0, bytes_of(HostMirrorChanges()));
  EXPECT_TRUE(taken.get());
  EXPECT_EQ(memory_[640], 5);
  EXPECT_EQ(wait(0, Bytes(sizeof(HostMirrorChanges))).returned, 0);
}

// Queries of devices and allocations show nothing of the work.
TEST_F(HostMirrorTraffics, CallsBesideTheWorkAskForNothing) {
  launch();
  worker_.next();
  CallSite passing = site(3);
  passing.flags = protocol::kFlagPassesStreams;
  auto fence = call_elsewhere(*session_, passing);
  worker_.reply(worker_.next());
  EXPECT_EQ(fence.get().returned, 0);
  EXPECT_EQ(wait(0, Bytes(sizeof(HostMirrorChanges))).returned, 0);
}

TEST_F(HostMirrorTraffics, ReplyOfTheWaitIsKept) {
  launch();
  worker_.next();
  auto fence = call_elsewhere(*session_, site(3));
  worker_.reply(worker_.next(), 0, text("the wait's own bytes"));
  worker_.reply(worker_.next(), 0, bytes_of(HostMirrorChanges()));
  EXPECT_EQ(fence.get().payload, "the wait's own bytes");
}

TEST_F(HostMirrorTraffics, BytesElsewhereAreIgnored) {
  launch();
  worker_.next();
  static char other[256];
  const auto aligned = (reinterpret_cast<std::uint64_t>(other) + 63) / 64 * 64;
  EXPECT_EQ(wait(0, changes(0, {aligned, 64, 0}, 64, 5)).returned, 0);
  for (const char each : other) EXPECT_EQ(each, 0);
}

TEST_F(HostMirrorTraffics, LieEndsTheSession) {
  const std::uint64_t at = address();
  const Bytes lies[] = {Bytes(),
                        Bytes(7),
                        changes(0, {at, 65, 0}, 65, 5),
                        changes(0, {at + 1, 64, 0}, 64, 5),
                        changes(0, {at, 128, 0}, 64, 5),
                        changes(0, {at, 64, 2}, 64, 5),
                        changes(0, {at, 0, 0}, 0, 5),
                        changes(0, {~std::uint64_t{63}, 64, 0}, 64, 5)};
  for (const Bytes& lie : lies) {
    FakeWorker worker;
    const auto session = start(worker);
    ASSERT_TRUE(session->add_host_mirror(at, kBytes, bytes(), true));
    session->begin_mirrored(at, kBytes, false);
    session->begin_device_reach();
    ASSERT_EQ(session->post(*Lane::current(), launch_site(), bytes_of(protocol::LaunchPayload())),
              0);
    worker.next();
    auto fence = call_elsewhere(*session, site(3));
    worker.reply(worker.next());
    worker.reply(worker.next(), 0, lie);
    EXPECT_EQ(fence.get().returned, kResultPeerGone);
    EXPECT_EQ(session->death().code(), Code::kProtocol);
  }
}

// A copy to a word of the device may let a kernel go on that reads the memory.
TEST_F(HostMirrorTraffics, WritesPrecedeCopiesToTheDevice) {
  memory_[100] = 1;
  CallSite copy = site(driver_abi::opcode::cuMemcpyHtoDAsync_v2);
  copy.stream = protocol::kStreamLegacy;
  const std::byte word[4]{};
  EXPECT_EQ(session_->copy_in(*Lane::current(), copy, 0x1000, word, Session::Reading::kNow), 0);
  EXPECT_EQ(step_of(worker_.next()), HostMirrorStep::kWrite);
  EXPECT_EQ(worker_.next().header.opcode, driver_abi::opcode::cuMemcpyHtoDAsync_v2);
}

TEST_F(HostMirrorTraffics, UnfinishedWorkIsNotAskedFor) {
  launch();
  worker_.next();
  auto query = call_elsewhere(*session_, site(driver_abi::opcode::cuStreamQuery));
  worker_.reply(worker_.next(), kResultNotReady);
  EXPECT_EQ(query.get().returned, kResultNotReady);
  auto later = call_elsewhere(*session_, site(driver_abi::opcode::cuStreamQuery));
  worker_.reply(worker_.next());
  const auto question = worker_.next();
  ASSERT_EQ(step_of(question), HostMirrorStep::kCollect);
  worker_.reply(question, 0, bytes_of(HostMirrorChanges()));
  EXPECT_EQ(later.get().returned, 0);
}

// The time between two events shows that they are complete.
TEST_F(HostMirrorTraffics, ElapsedTimeIsAWait) {
  launch();
  worker_.next();
  CallSite elapsed = site(driver_abi::opcode::cuEventElapsedTime_v2);
  elapsed.flags = protocol::kFlagPassesStreams;
  auto fence = call_elsewhere(*session_, elapsed);
  worker_.reply(worker_.next());
  const auto question = worker_.next();
  ASSERT_EQ(step_of(question), HostMirrorStep::kCollect);
  worker_.reply(question, 0, bytes_of(HostMirrorChanges()));
  EXPECT_EQ(fence.get().returned, 0);
}

constexpr Handle kStream = 0x5D00'0000'0000'0401;
constexpr Handle kOtherStream = 0x5D00'0000'0000'0402;

TEST_F(HostMirrorTraffics, NothingIsAskedAfterTheWaitForTheOnlyStreamWithWork) {
  for (const Handle stream : {kStream, Handle{protocol::kStreamLegacy}}) {
    for (const bool by_query : {false, true}) {
      launch(stream);
      worker_.next();
      EXPECT_TRUE(asks(by_query ? query(stream) : synchronize(stream)));
      CallSite later = site(3);
      later.work = Work::kNone;
      EXPECT_FALSE(asks(later));
      EXPECT_TRUE(session_->may_answer_early());
    }
  }
}

TEST_F(HostMirrorTraffics, EachWaitAsksWhileAnotherStreamHasWork) {
  launch(kStream);
  launch(kOtherStream);
  worker_.next();
  worker_.next();
  EXPECT_TRUE(asks(synchronize(kStream)));
  EXPECT_FALSE(session_->may_answer_early());
  EXPECT_TRUE(asks(synchronize(kStream)));
  EXPECT_TRUE(asks(synchronize(kOtherStream)));
  EXPECT_FALSE(asks(synchronize(kStream)));
}

TEST_F(HostMirrorTraffics, WorkOfAnEndedStreamGoesOn) {
  launch(kStream);
  worker_.next();
  session_->forget_stream(kContext, kStream);
  EXPECT_TRUE(asks(synchronize(protocol::kStreamLegacy)));
  EXPECT_FALSE(session_->may_answer_early());
  CallSite all = site(driver_abi::opcode::cuCtxSynchronize);
  all.waits = Waits::kForContext;
  EXPECT_TRUE(asks(all));
  EXPECT_TRUE(session_->may_answer_early());
  EXPECT_FALSE(asks(all));
}

// Known progress, such as a reported event, does not bring what the device has written.
TEST_F(HostMirrorTraffics, NothingIsAnsweredEarlyBeforeTheWritesAreTaken) {
  launch(kStream);
  worker_.next();
  CallSite passing = query(kStream);
  passing.flags = protocol::kFlagPassesStreams;
  auto fence = call_elsewhere(*session_, passing);
  worker_.reply(worker_.next());
  EXPECT_EQ(fence.get().returned, 0);
  EXPECT_FALSE(session_->may_answer_early());
  EXPECT_TRUE(asks(synchronize(kStream)));
  EXPECT_TRUE(session_->may_answer_early());
}

// More streams than are told apart, each of which ends.
TEST_F(HostMirrorTraffics, EndedStreamsLeaveRoomForOthers) {
  for (Handle stream = kStream; stream < kStream + 100; ++stream) {
    launch(stream);
    worker_.next();
    EXPECT_TRUE(asks(synchronize(stream)));
    session_->forget_stream(kContext, stream);
  }
  EXPECT_TRUE(session_->may_answer_early());
}

// Otherwise a worker could keep the wait going for ever.
TEST_F(HostMirrorTraffics, QuestionsGoForward) {
  launch();
  worker_.next();
  auto fence = call_elsewhere(*session_, site(3));
  worker_.reply(worker_.next());
  worker_.reply(worker_.next(), 0, bytes_of(HostMirrorChanges{address() + 64}));
  worker_.reply(worker_.next(), 0, bytes_of(HostMirrorChanges{address() + 64}));
  EXPECT_EQ(fence.get().returned, kResultPeerGone);
  EXPECT_EQ(session_->death().code(), Code::kProtocol);
}

TEST_F(HostMirrorTraffics, QuestionsEndWithTheMemory) {
  launch();
  worker_.next();
  auto fence = call_elsewhere(*session_, site(3));
  worker_.reply(worker_.next());
  worker_.reply(worker_.next(), 0, bytes_of(HostMirrorChanges{address() + kBytes + 64}));
  EXPECT_EQ(fence.get().returned, kResultPeerGone);
  EXPECT_EQ(session_->death().code(), Code::kProtocol);
}

}  // namespace
}  // namespace gpurun::client
