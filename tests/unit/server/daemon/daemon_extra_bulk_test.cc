// Joining connections: a bulk connection joins the running session for which it is proved, and no
// other. Each index joins once. A refused one leaves the session unchanged.
#include "tests/unit/server/daemon/daemon_under_test.h"

namespace gpurun::server {
namespace {

// Nothing forks here, and all connections are wanted.
class NoKeeper final : public transport::DescriptorKeeper {
  void before_change() noexcept override {}
  void after_change(int) noexcept override {}
  bool wanted() const noexcept override { return true; }
};

class DaemonExtraBulkTest : public DaemonTest {
 protected:
  void SetUp() override {
    start(1);
    control_ = link();
    auto session = control_->request_lease(ask(1));
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    session_ = *std::move(session);
  }
  // The refusal of one more connection of session `id`, with these values.
  std::string refusal_of(std::uint8_t id, std::uint16_t index, std::uint16_t count) {
    auto connection = dial();
    protocol::Attach late = words(session_, id);
    late.count = count;
    say(*connection, session_, late, index);
    return refusal(*connection);
  }
  // Attaches a session of two connections by hand.
  void attach(std::uint8_t id) {
    for (std::uint16_t index = 0; index < 2; ++index) {
      connections_.push_back(dial());
      say(*connections_.back(), session_, words(session_, id), index);
    }
    const int before = ++sessions_;
    ASSERT_TRUE(workers_.wait([&] { return workers_.started == before; }));
  }

  std::unique_ptr<client::ControlLink> control_;
  client::SessionData session_;
  std::vector<std::unique_ptr<transport::Connection>> connections_;
  NoKeeper keeper_;
  int sessions_ = 0;
};

TEST_F(DaemonExtraBulkTest, WorkerReceivesConnectionsUpToLimit) {
  client::AttachOptions options;
  options.more_later = true;
  auto attached = client::attach(session_, options);
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  ASSERT_NE(attached->channels.more, nullptr);
  for (std::size_t number = 2; number < limits::kConnectionsMax; ++number) {
    auto joined = attached->channels.more->open(keeper_);
    ASSERT_TRUE(joined.ok()) << joined.status().to_string();
    EXPECT_EQ(joined->cores, 3u);
    const std::byte sent = static_cast<std::byte>(number);
    const ByteView part(&sent, 1);
    ASSERT_TRUE(joined->connection->send({&part, 1}, soon()).ok());
    std::byte got{};
    const std::lock_guard lock(workers_.mutex);
    ASSERT_EQ(workers_.connections.size(), number + 1);
    ASSERT_TRUE(workers_.connections.back()->receive({&got, 1}, 1, soon()).ok());
    EXPECT_EQ(got, sent);
  }
  EXPECT_EQ(attached->channels.more->open(keeper_).status().code(), Code::kResourceExhausted);
  const std::lock_guard lock(workers_.mutex);
  EXPECT_EQ(workers_.started, 1);
}

TEST_F(DaemonExtraBulkTest, ServerOrClientOptOutDisablesExtraConnections) {
  auto attached = client::attach(session_, {});
  ASSERT_TRUE(attached.ok());
  EXPECT_EQ(attached->channels.more, nullptr);
  workers_.features.offered &= ~protocol::feature_bit(protocol::Feature::kLateBulk);
  client::AttachOptions options;
  options.more_later = true;
  attached = client::attach(session_, options);
  ASSERT_TRUE(attached.ok());
  EXPECT_EQ(attached->channels.more, nullptr);
}

TEST_F(DaemonExtraBulkTest, AcceptsEachIndexOnce) {
  attach(7);
  const std::string again = "this session has attached before";
  EXPECT_EQ(refusal_of(7, 0, 2), again);
  EXPECT_EQ(refusal_of(7, 1, 2), again);
  EXPECT_EQ(refusal_of(7, 2, 4), again);  // Not the index after the existing connections.
  auto joins = dial();
  protocol::Attach late = words(session_, 7);
  late.count = 5;
  say(*joins, session_, late, 4);
  ASSERT_TRUE(workers_.wait([&] { return workers_.connections.size() == 3; }));
  EXPECT_EQ(refusal_of(7, 4, 5), again);
  EXPECT_EQ(refusal_of(7, 3, 4), again);
  EXPECT_EQ(workers_.connections.size(), 3u);
}

TEST_F(DaemonExtraBulkTest, RefusesProofOfAnotherSession) {
  attach(7);
  attach(8);
  // The proof is for session 8, the message names session 7.
  auto connection = dial();
  protocol::Attach late = words(session_, 7);
  late.index = 2;
  late.count = 3;
  const protocol::Key key =
      protocol::link_key(bytes_of(session_.ticket_key), protocol::Link::kAttach, session_.challenge,
                         late.nonce, words(session_, 8).session);
  ASSERT_TRUE(
      protocol::send_control(*connection, late, key, protocol::Sender::kClient, 2, soon()).ok());
  EXPECT_EQ(refusal(*connection), "the ticket is not proved");
  // A connection of an unknown session begins to gather that session, and reaches no worker.
  auto unknown = dial();
  late = words(session_, 9);
  late.count = 3;
  say(*unknown, session_, late, 2);
  EXPECT_EQ(refusal_of(8, 1, 2), "this session has attached before");
  const std::lock_guard lock(workers_.mutex);
  EXPECT_EQ(workers_.connections.size(), 2u);
}

TEST_F(DaemonExtraBulkTest, WorkerRefusalLeavesSessionRunning) {
  client::AttachOptions options;
  options.more_later = true;
  auto attached = client::attach(session_, options);
  ASSERT_TRUE(attached.ok());
  {
    const std::lock_guard lock(workers_.mutex);
    workers_.refuse_joining = true;
  }
  const auto refused = attached->channels.more->open(keeper_);
  EXPECT_EQ(refused.status().code(), Code::kRefused);
  EXPECT_NE(refused.status().message().find("on purpose"), std::string::npos);
  {
    const std::lock_guard lock(workers_.mutex);
    workers_.refuse_joining = false;
  }
  EXPECT_TRUE(attached->channels.more->open(keeper_).ok());
  EXPECT_EQ(workers_.killed, 0);
}

TEST_F(DaemonExtraBulkTest, RefusesConnectionAfterLeaseEnds) {
  client::AttachOptions options;
  options.more_later = true;
  auto attached = client::attach(session_, options);
  ASSERT_TRUE(attached.ok());
  end_lease(*control_);
  EXPECT_EQ(attached->channels.more->open(keeper_).status().code(), Code::kRefused);
}

}  // namespace
}  // namespace gpurun::server
