// Carried copies: which small copies from the device the log carries. Their bytes leave with the
// reply that the program waits for, and behind nothing that would delay them.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "server/bulk/bulk_lanes.h"
#include "tests/unit/server/bulk/taking_connection.h"
#include "tests/unit/server/worker/execution/executor_under_test.h"

namespace gpurun::server {
namespace {

// The copies that the log may carry, and those that it may not.
class LogCarriedCopiesTest : public ::testing::Test {
 protected:
  explicit LogCarriedCopiesTest(bool spreads = true) : lanes_({&first_}, false, spreads) {
    BulkLanes::Listener listener;
    listener.user = this;
    listener.changed = listener.time = [](void*) {};
    listener.carry = [](void* of, const protocol::BulkHeader& header, ByteView bytes) {
      auto& test = *static_cast<LogCarriedCopiesTest*>(of);
      if (!test.has_room_) return false;
      test.carried_.emplace_back(header.transfer, header.watermark);
      test.last_.assign(bytes.begin(), bytes.end());
      return true;
    };
    listener.failed = [](void*, const Status&) {};
    EXPECT_TRUE(lanes_.start(listener).ok());
  }
  ~LogCarriedCopiesTest() override {
    first_.let_go(1000);
    lanes_.stop();
  }

  void copy_out(std::uint64_t transfer, std::size_t bytes) {
    ASSERT_EQ(lanes_.out().open(transfer, transfer, bytes), 0);
    while (!lanes_.out().all_given(transfer)) {
      const BulkOut::Chunk chunk = lanes_.out().next(transfer);
      ASSERT_NE(chunk.bytes, nullptr);
      std::fill_n(chunk.bytes, chunk.size, static_cast<std::byte>(transfer));
      lanes_.out().copied(transfer, chunk, 0);
    }
    lanes_.out().end_call(transfer, transfer, bytes, 0);
  }

  StandingConnection first_;
  BulkLanes lanes_;
  bool has_room_ = true;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> carried_;  // Pairs of transfer and
                                                                  // watermark.
  Bytes last_;
};

TEST_F(LogCarriedCopiesTest, CarriesSmallCopiesAndReturnsSlots) {
  const std::size_t free = lanes_.staging_out().free_slots();
  copy_out(1, 4);
  copy_out(2, limits::kItemCopyBytesMax);
  EXPECT_EQ(carried_, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{1, 1}, {2, 2}}));
  EXPECT_EQ(last_, Bytes(limits::kItemCopyBytesMax, std::byte{2}));
  EXPECT_EQ(lanes_.staging_out().free_slots(), free);
  EXPECT_EQ(lanes_.out().remembered(), 0U);
  EXPECT_EQ(first_.sent_so_far().size(), 0U);
}

TEST_F(LogCarriedCopiesTest, SendsCopyOverBulkWhenLogIsFull) {
  has_room_ = false;
  copy_out(1, 4);
  first_.await();
  first_.let_go(1);
  EXPECT_EQ(first_.sent(protocol::kChunkHeadBytes + 4).size(), protocol::kChunkHeadBytes + 4);
}

TEST_F(LogCarriedCopiesTest, DoesNotCarryLargerCopies) {
  copy_out(1, limits::kItemCopyBytesMax + 1);
  EXPECT_TRUE(carried_.empty());
  first_.await();
  first_.let_go(1);
}

// The short end of a longer copy is not carried either.
TEST_F(LogCarriedCopiesTest, DoesNotCarryEndOfLongerCopy) {
  copy_out(1, limits::kBulkChunkBytes + 4);
  EXPECT_TRUE(carried_.empty());
  first_.await();
  first_.let_go(2);
}

// At the client the copy would have to wait for these.
TEST_F(LogCarriedCopiesTest, DoesNotCarryCopyBehindUnsentChunks) {
  copy_out(1, limits::kBulkChunkBytes);
  first_.await();                        // The sender has it.
  copy_out(2, limits::kBulkChunkBytes);  // It waits for the sender.
  copy_out(3, 4);
  EXPECT_TRUE(carried_.empty());
  first_.let_go(3);
}

class LogCarriedCopiesUnspreadTest : public LogCarriedCopiesTest {
 protected:
  LogCarriedCopiesUnspreadTest() : LogCarriedCopiesTest(false) {}
};

// If chunks do not wait for earlier ones, the client could overwrite it with an earlier copy.
TEST_F(LogCarriedCopiesUnspreadTest, DoesNotCarryCopiesWithoutSpreading) {
  copy_out(1, 4);
  EXPECT_TRUE(carried_.empty());
  first_.await();
  first_.let_go(1);
}

// On a device that completes everything at once.
class CarriedCopyRepliesTest : public ExecutorTest {
 protected:
  void SetUp() override {
    ExecutorTest::SetUp();
    copy_out_at_once(options_.driver);
    set_driver(options_.driver);
    BulkLanes::Listener listener;
    listener.user = &answers_;
    listener.changed = listener.time = [](void*) {};
    listener.carry = [](void* of, const protocol::BulkHeader& header, ByteView bytes) {
      protocol::ReplyHeader item;
      item.kind = protocol::ReplyKind::kCopyBytes;
      item.subject = header.transfer;
      item.watermark = header.watermark;
      return static_cast<Outbox*>(of)->post_later(item, bytes).ok();
    };
    listener.failed = [](void*, const Status&) {};
    ASSERT_TRUE(lanes_.start(listener).ok());
    executor_ = std::make_unique<Executor>(options_, answers_, &lanes_);
    ASSERT_EQ(executor_->handles().bind(kContext, HandleKind::kContext, 11), 0);
    ASSERT_EQ(executor_->handles().bind(kStreamX, HandleKind::kStream, 22), 0);
  }
  virtual void set_driver(DriverFunctions&) {}
  void TearDown() override {
    executor_.reset();
    lanes_.stop();
  }
  void add(protocol::Form form, std::uint16_t flags, ByteView payload, std::uint64_t transfer) {
    protocol::RecordView record = next_record(kRun, Order::kStream, kStreamX, flags, payload);
    record.header.form = form;
    record.header.bulk = transfer;
    calls_.push_back(record);
  }
  // The items of all frames, each with its kind, watermark and transfer.
  struct Item {
    protocol::ReplyKind kind;
    std::uint64_t watermark, transfer;
    friend bool operator==(const Item&, const Item&) = default;
  };
  std::vector<Item> said() {
    std::vector<Item> items;
    const Bytes sent = log_.sent_so_far();
    for (std::size_t at = 0; at + protocol::kFrameHeaderBytes <= sent.size();) {
      const auto frame = protocol::parse_frame_header(ByteView(sent).subspan(at));
      if (!frame.ok()) break;
      at += protocol::kFrameHeaderBytes;
      ByteView rest = ByteView(sent).subspan(at, frame->payload_bytes);
      at += frame->payload_bytes;
      while (frame->kind == protocol::FrameKind::kReplies && !rest.empty()) {
        const auto item = protocol::parse_reply(rest);
        if (!item.ok()) break;
        items.push_back({item->header.kind, item->header.watermark, item->header.subject});
        rest = rest.subspan(item->header.bytes);
      }
    }
    return items;
  }

  Bytes memory_ = Bytes(64, std::byte{7});
  protocol::CopyPayload payload_{0, reinterpret_cast<std::uintptr_t>(memory_.data()), 64};
  std::vector<protocol::RecordView> calls_;
  TakingConnection taking_{std::size_t{1} << 30};
  BulkLanes lanes_{{&taking_}, false, true};
  TakingConnection log_{0};
  Outbox answers_{log_, kWait};
};

TEST_F(CarriedCopyRepliesTest, SendsBytesWithReplyThatDependsOnThem) {
  using protocol::ReplyKind;
  add(protocol::Form::kCopyOut, 0, bytes_of(payload_), 1);
  add(protocol::Form::kRaw, kFence, {}, 0);
  ASSERT_TRUE(executor_->accept(calls_).ok());
  EXPECT_EQ(said(), (std::vector<Item>{{ReplyKind::kCopyBytes, 1, 1}, {ReplyKind::kReply, 1, 0}}));
  EXPECT_EQ(log_.sends(), 1U);
  EXPECT_EQ(taking_.sends(), 0U);
}

// The program may never ask. The bytes leave when the executor has handled all arrived records.
TEST_F(CarriedCopyRepliesTest, SendsBytesWithoutPendingReply) {
  add(protocol::Form::kCopyOut, 0, bytes_of(payload_), 1);
  add(protocol::Form::kCopyOut, 0, bytes_of(payload_), 2);
  ASSERT_TRUE(executor_->accept(calls_).ok());
  using protocol::ReplyKind;
  EXPECT_EQ(said(),
            (std::vector<Item>{{ReplyKind::kCopyBytes, 1, 1}, {ReplyKind::kCopyBytes, 2, 2}}));
  EXPECT_EQ(log_.sends(), 1U);
}

// On a device with pending work, where a helper waits for the event.
class UnrequestedBytesTest : public CarriedCopyRepliesTest {
 protected:
  void SetUp() override {
    CarriedCopyRepliesTest::SetUp();
    helpers_ = 0;
    stage_.event_state = kErrorNotReady;
    add(protocol::Form::kCopyOut, 0, bytes_of(payload_), 1);
    hand_on();
  }
  void set_driver(DriverFunctions& driver) override {
    driver.cuEventSynchronize = [](void*) {
      ++helpers_;
      return 0;
    };
    options_.handlers.launch = [](Call&) { return CallOutcome::done(0); };
    options_.handlers.by_opcode[kRun2] = [](Call&) {
      EXPECT_TRUE(helped()) << "its bytes would wait for this call";
      return CallOutcome::done(0);
    };
  }
  void hand_on() {
    ASSERT_TRUE(executor_->accept(calls_).ok());
    calls_.clear();
  }
  static bool helped() {
    const auto until = std::chrono::steady_clock::now() + kWait;
    while (helpers_ == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    return helpers_ != 0;
  }
  static inline std::atomic<int> helpers_{0};
};

TEST_F(UnrequestedBytesTest, IdleExecutorStartsHelper) {
  EXPECT_EQ(helpers_, 0);
  executor_->idle();
  EXPECT_TRUE(helped());
}

TEST_F(UnrequestedBytesTest, SeveralShortCallsStartHelper) {
  for (int i = 0; i < 32; ++i) {
    add(protocol::Form::kLaunch, 0, {}, 0);
    hand_on();
  }
  EXPECT_TRUE(helped());
}

TEST_F(UnrequestedBytesTest, HelperStartsBeforePossiblyLongCall) {
  protocol::RecordView record = next_record(kRun2, Order::kStream, kStreamX, 0, {});
  record.header.form = protocol::Form::kRaw;
  calls_.push_back(record);
  hand_on();
  EXPECT_NE(helpers_, 0);
}

}  // namespace
}  // namespace gpurun::server
