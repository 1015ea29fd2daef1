// Outbox: decides which copies' bytes travel on the log. After goodbye() returns, the caller may
// hang up at once. If another thread is sending, that thread also sends the goodbye. An earlier
// return would lose the goodbye, and with it the reason of the session's end.
#include "server/worker/execution/outbox.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>

#include "protocol/log/frame.h"
#include "tests/unit/server/bulk/taking_connection.h"

namespace gpurun::server {
namespace {

using namespace std::chrono_literals;

// Its first send returns when the test allows it.
class SlowConnection : public transport::Connection {
 public:
  const transport::Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }
  Status send(std::span<const ByteView> parts, Deadline) override {
    if (!first_.exchange(true)) {
      inside.set_value();
      go.get_future().wait();
    }
    for (const ByteView part : parts) {
      sent.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
    return {};
  }
  Result<std::size_t> receive(MutableBytes, std::size_t, Deadline) override {
    return Status(Code::kPeerGone, "nobody");
  }
  void shut_down() noexcept override {}

  std::promise<void> inside, go;
  std::string sent;

 private:
  transport::Capabilities capabilities_;
  std::string description_ = "slow";
  std::atomic<bool> first_{false};
};

// Small copies' bytes go on the log if a few copies precede each reply.
class OutboxCopiesTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kMost = kOutboxCopiesBytesMax;
  void say(protocol::ReplyKind kind, std::size_t bytes = 0) {
    protocol::ReplyHeader item;
    item.kind = kind;
    EXPECT_TRUE(outbox_.post(item, Bytes(bytes)).ok());
    ++said_;
  }
  TakingConnection connection_{0};
  Outbox outbox_{connection_, 30s};
  std::uint64_t said_ = 0;
};

TEST_F(OutboxCopiesTest, AcceptsFewCopiesBeforeEachReply) {
  for (const auto news : {protocol::ReplyKind::kReply, protocol::ReplyKind::kEventDone}) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(outbox_.takes_copy(kMost / 2));
      EXPECT_TRUE(outbox_.takes_copy(kMost / 2));
      say(news);
    }
  }
}

TEST_F(OutboxCopiesTest, RejectsManyCopiesUntilReplyWithoutCopies) {
  EXPECT_TRUE(outbox_.takes_copy(kMost));
  EXPECT_FALSE(outbox_.takes_copy(1));
  say(protocol::ReplyKind::kReply);
  EXPECT_FALSE(outbox_.takes_copy(1)) << "there were many before";
  say(protocol::ReplyKind::kOutput, 8);
  EXPECT_FALSE(outbox_.takes_copy(1)) << "that was no news of theirs";
  say(protocol::ReplyKind::kReply);
  say(protocol::ReplyKind::kReply);  // With no copy before it.
  EXPECT_TRUE(outbox_.takes_copy(1));
}

TEST_F(OutboxCopiesTest, RejectsCopiesWhileClientDoesNotAcknowledge) {
  for (std::size_t kept = 0; kept < kOutboxCopiesKeptBytesMax; kept += 128 << 10) {
    EXPECT_TRUE(outbox_.takes_copy(4));
    say(protocol::ReplyKind::kReply, 128 << 10);
  }
  EXPECT_FALSE(outbox_.takes_copy(4));
  EXPECT_TRUE(outbox_.acknowledged(said_).ok());
  EXPECT_TRUE(outbox_.takes_copy(4));
}

TEST(Outbox, GoodbyeReturnsAfterItIsSent) {
  SlowConnection connection;
  Outbox outbox(connection, 30s);
  std::thread sending([&] { outbox.heartbeat(); });
  connection.inside.get_future().wait();
  std::promise<void> returned;
  std::thread leaving([&] {
    outbox.goodbye("because of this");
    returned.set_value();
  });
  std::future<void> over = returned.get_future();
  EXPECT_EQ(over.wait_for(50ms), std::future_status::timeout);
  connection.go.set_value();
  leaving.join();
  const bool said = connection.sent.find("because of this") != std::string::npos;
  sending.join();
  EXPECT_TRUE(said);
}

}  // namespace
}  // namespace gpurun::server
