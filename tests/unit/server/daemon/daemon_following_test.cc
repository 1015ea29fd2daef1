// Requests behind an ending lease: its client may have left before its GPUs are free, and its last
// message may arrive after the next client's first one. No request waits for other leases, and no
// user exceeds their bounds. The daemon's deadlines are too long to refuse a request here. A wait
// that is too long ends at the client's deadline.
#include <stdlib.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "tests/unit/server/daemon/daemon_under_test.h"

namespace gpurun::server {
namespace {

constexpr milliseconds kEver = std::chrono::hours(1);

class EndingLeaseTest : public DaemonTest {
 protected:
  using Answer = std::future<Result<client::SessionData>>;

  void SetUp() override {
    char name[] = "/tmp/gpurun-following-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    anna_ = make_user(folder_ + "/tokens", "anna");
    ben_ = make_user(folder_ + "/tokens", "ben");
  }
  void TearDown() override {
    workers_.let_go();
    DaemonTest::TearDown();
    std::filesystem::remove_all(folder_);
  }
  void serve(unsigned devices, std::optional<std::uint64_t> gpus_each = {}) {
    DaemonOptions options;
    options.devices = devices;
    options.handshake_deadline = kLong;
    options.follow_deadline = options.overtaken_deadline = kEver;
    options.tokens = std::make_shared<TokenStore>(folder_ + "/tokens");
    options.user_limits.every.gpus = gpus_each;
    start(std::move(options));
  }
  std::unique_ptr<client::ControlLink> link_of(const protocol::Token& token) {
    auto result = client::ControlLink::connect_with_token(daemon_->address(), token, soon());
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? *std::move(result) : nullptr;
  }
  Code answer_to(const protocol::Token& token, unsigned gpus) {
    const auto session = link_of(token)->request_lease(ask(gpus));
    return session.ok() ? Code::kOk : session.status().code();
  }
  static Answer ask_by(client::ControlLink& link, unsigned gpus) {
    return std::async(std::launch::async, [&link, gpus] { return link.request_lease(ask(gpus)); });
  }
  unsigned waiting() {
    const auto listing = link()->list();
    EXPECT_TRUE(listing.ok()) << listing.status().to_string();
    return listing.ok() ? listing->waiting : 0;
  }
  // Whether the request waits without an answer.
  bool waits(const Answer& answer) {
    while (answer.wait_for(milliseconds(0)) != std::future_status::ready) {
      if (waiting() > 0) return true;
    }
    return false;
  }
  // A lease with one process. Its worker outlives the lease until let_go().
  std::unique_ptr<client::ControlLink> lease_that_lingers(const protocol::Token& token) {
    workers_.linger = true;
    auto lease = link_of(token);
    const auto session = lease->request_lease(ask(1));
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    if (session.ok()) EXPECT_TRUE(client::attach(*session, {}).ok());
    return lease;
  }
  static void expect_granted(Answer& answer) {
    const auto session = answer.get();
    EXPECT_TRUE(session.ok()) << session.status().to_string();
  }

  std::string folder_;
  protocol::Token anna_, ben_;
};

// A client leaves before its GPUs are free. The next request does not wait for other leases, but it
// waits for the one that is ending, and only for that.
TEST_F(DaemonTest, RequestWaitsOnlyForEndedLease) {
  start(2);
  workers_.linger = true;
  auto stays = link();
  ASSERT_TRUE(stays->request_lease(ask(1)).ok());
  auto goes = link();
  const auto session = goes->request_lease(ask(1));
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  const auto attached = client::attach(*session, {});
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_EQ(link()->request_lease(ask(1)).status().code(), Code::kRefused);
  goes.reset();
  EXPECT_EQ(link()->request_lease(ask(2)).status().code(), Code::kRefused);
  auto follows = link();
  auto granted = std::async(std::launch::async, [&] { return follows->request_lease(ask(1)); });
  ASSERT_TRUE(workers_.wait([&] { return workers_.killed == 1; }));
  // One GPU is about to be free, so one more request is too many. The first one waits, unless it
  // was refused.
  while (link()->list()->waiting == 0 &&
         granted.wait_for(milliseconds(0)) != std::future_status::ready) {
    std::this_thread::yield();
  }
  EXPECT_EQ(link()->request_lease(ask(1)).status().code(), Code::kRefused);
  workers_.let_go();
  const auto next = granted.get();
  EXPECT_TRUE(next.ok()) << next.status().to_string();
}

// The end of one lease and the request of the other use two connections.
TEST_F(EndingLeaseTest, RequestWaitsForLeaseEndThatArrivesLater) {
  serve(1);
  auto goes = link_of(anna_);
  ASSERT_TRUE(goes->request_lease(ask(1)).ok());
  auto follows = link_of(anna_);
  Answer answer = ask_by(*follows, 1);
  EXPECT_TRUE(waits(answer));
  goes.reset();
  expect_granted(answer);
}

TEST_F(EndingLeaseTest, RequestAtUserLimitWaitsForOwnLeaseEnd) {
  serve(4, 1);
  auto goes = link_of(anna_);
  ASSERT_TRUE(goes->request_lease(ask(1)).ok());
  auto follows = link_of(anna_);
  Answer answer = ask_by(*follows, 1);
  EXPECT_TRUE(waits(answer));
  goes.reset();
  expect_granted(answer);
}

TEST_F(EndingLeaseTest, RefusesRequestThatOwnLeasesCannotSatisfy) {
  serve(3, 2);
  auto annas = link_of(anna_);
  ASSERT_TRUE(annas->request_lease(ask(1)).ok());
  auto bens = link_of(ben_);
  ASSERT_TRUE(bens->request_lease(ask(1)).ok());
  auto operators = link();
  ASSERT_TRUE(operators->request_lease(ask(1)).ok());
  EXPECT_EQ(answer_to(ben_, 2), Code::kRefused) << "one of two, if his own came back";
  EXPECT_EQ(answer_to(anna_, 3), Code::kRefused) << "the bound";
  EXPECT_EQ(link()->request_lease(ask(3)).status().code(), Code::kRefused);
  bens.reset();
  operators.reset();
  EXPECT_EQ(answer_to(ben_, 2), Code::kOk);
}

TEST_F(EndingLeaseTest, WaitingRequestBlocksNoOtherAndLeavesWithItsClient) {
  serve(2);
  auto annas = link_of(anna_);
  ASSERT_TRUE(annas->request_lease(ask(1)).ok());
  auto waiting_link = link_of(anna_);
  Answer answer = ask_by(*waiting_link, 2);
  EXPECT_TRUE(waits(answer));
  EXPECT_EQ(answer_to(ben_, 1), Code::kOk);
  ASSERT_EQ(shutdown(waiting_link->fd(), SHUT_WR), 0);
  EXPECT_FALSE(answer.get().ok());
  EXPECT_EQ(waiting(), 0u);
}

TEST_F(EndingLeaseTest, EndedLeaseCountsForUserUntilItsWorkersExit) {
  serve(4, 1);
  auto goes = lease_that_lingers(anna_);
  goes.reset();
  ASSERT_TRUE(workers_.wait([&] { return workers_.killed == 1; }));
  auto follows = link_of(anna_);
  Answer answer = ask_by(*follows, 1);
  EXPECT_TRUE(waits(answer));
  EXPECT_EQ(answer_to(ben_, 1), Code::kOk);
  workers_.let_go();
  expect_granted(answer);
}

}  // namespace
}  // namespace gpurun::server
