// Gathered copies: the executor keeps the bytes of consecutive copies out together. Later calls
// neither wait for that nor overtake it.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "server/bulk/bulk_lanes.h"
#include "tests/unit/server/bulk/taking_connection.h"
#include "tests/unit/server/worker/execution/executor_under_test.h"

namespace gpurun::server {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 10;
constexpr std::size_t kFrameBytes = protocol::kChunkHeadBytes + kBytes;

TakingConnection* bulk = nullptr;
std::size_t sent_before_call = 0;

// The log, which notes for each frame how many bytes of copies were sent before it.
class LookingConnection final : public TakingConnection {
 public:
  LookingConnection() : TakingConnection(0) {}
  Status send(std::span<const ByteView> parts, Deadline deadline) override {
    sent_before_frames.push_back(bulk->sent_so_far().size());
    return TakingConnection::send(parts, deadline);
  }
  std::vector<std::size_t> sent_before_frames;
};

// On a device that completes everything at once.
class GatheredCopiesTest : public ExecutorTest {
 protected:
  void SetUp() override {
    ExecutorTest::SetUp();
    bulk = &taking_;
    sent_before_call = 0;
    copy_out_at_once(options_.driver);
    options_.handlers.by_opcode[kRun] = [](Call&) {
      sent_before_call = bulk->sent_so_far().size();
      return CallOutcome::done(0);
    };
    BulkLanes::Listener listener;
    listener.changed = listener.time = [](void*) {};
    listener.failed = [](void*, const Status&) {};
    ASSERT_TRUE(lanes_.start(listener).ok());
    executor_ = std::make_unique<Executor>(options_, answers_, &lanes_);
    ASSERT_EQ(executor_->handles().bind(kContext, HandleKind::kContext, 11), 0);
    ASSERT_EQ(executor_->handles().bind(kStreamX, HandleKind::kStream, 22), 0);
  }
  void TearDown() override {
    executor_.reset();
    lanes_.stop();
  }

  void add(protocol::Form form, std::uint16_t flags, ByteView payload, std::uint64_t transfer = 0) {
    protocol::RecordView record = next_record(kRun, Order::kStream, kStreamX, flags, payload);
    record.header.form = form;
    record.header.bulk = transfer;
    calls_.push_back(record);
  }
  void add_copy(std::uint64_t transfer, std::uint16_t flags = 0) {
    add(protocol::Form::kCopyOut, flags, bytes_of(payload_), transfer);
  }
  void add_call(std::uint16_t flags = 0) { add(protocol::Form::kRaw, flags, {}); }
  // As the decoder passes on records that arrived together.
  void hand_on() { ASSERT_TRUE(executor_->accept(calls_).ok()); }

  Bytes memory_ = Bytes(kBytes, std::byte{7});
  protocol::CopyPayload payload_{0, reinterpret_cast<std::uintptr_t>(memory_.data()), kBytes};
  std::vector<protocol::RecordView> calls_;
  TakingConnection taking_{std::size_t{1} << 30};
  BulkLanes lanes_{{&taking_}, false, false};
  LookingConnection log_;
  Outbox answers_{log_, kWait};
};

TEST_F(GatheredCopiesTest, ConsecutiveCopiesLeaveInOneSend) {
  for (std::uint64_t transfer = 1; transfer <= 6; ++transfer) add_copy(transfer);
  hand_on();
  EXPECT_EQ(taking_.sent_so_far().size(), 6 * kFrameBytes);
  EXPECT_EQ(taking_.sends(), 1U);
}

TEST_F(GatheredCopiesTest, BytesLeaveBeforeNextCall) {
  add_copy(1);
  add_copy(2);
  add_call();
  hand_on();
  EXPECT_EQ(sent_before_call, 2 * kFrameBytes);
  EXPECT_EQ(taking_.sends(), 1U);
}

TEST_F(GatheredCopiesTest, AwaitedCopyRepliesAfterItsBytes) {
  add_copy(1, kFence);
  hand_on();
  ASSERT_EQ(log_.sent_before_frames.size(), 1U);
  EXPECT_EQ(log_.sent_before_frames[0], kFrameBytes);
}

// The sender thread sends the large one, and sleeps until it is woken.
TEST_F(GatheredCopiesTest, LargeCopyAfterSmallCopyIsSent) {
  const Bytes large(limits::kBulkChunkBytes, std::byte{8});
  const protocol::CopyPayload of_large{0, reinterpret_cast<std::uintptr_t>(large.data()),
                                       large.size()};
  std::size_t all = 0;
  for (std::uint64_t transfer = 1; transfer <= 40; transfer += 2) {
    calls_.clear();
    add_copy(transfer);
    add(protocol::Form::kCopyOut, kFence, bytes_of(of_large), transfer + 1);
    hand_on();
    all += kFrameBytes + protocol::kChunkHeadBytes + large.size();
    ASSERT_EQ(taking_.sent(all).size(), all);
  }
}

}  // namespace
}  // namespace gpurun::server
