// Lease bounds: clients with a ticket cannot exhaust gpurund's memory. Waiting requests, gathering
// sessions and attached sessions are bounded, and clients within the bounds are served.
#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "protocol/limits.h"
#include "server/daemon/leases/lease_book.h"
#include "server/daemon/leases/lease_queue.h"
#include "server/daemon/links/connection_closer.h"
#include "transport/loopback/connection.h"

namespace gpurun::server {
namespace {

protocol::Id numbered(std::size_t number) {
  protocol::Id id{};
  for (std::size_t byte = 0; byte < sizeof number; ++byte) {
    id[byte] = static_cast<std::uint8_t>(number >> (8 * byte));
  }
  return id;
}

TEST(LeaseQueueBounds, RefusesRequestsOverWaitingLimit) {
  LeaseQueue queue(1);
  const auto holder = queue.claim(1);
  ASSERT_TRUE(holder.ok());
  std::vector<std::shared_ptr<Claim>> waiting;
  for (std::size_t i = 0; i < limits::kWaitingMax; ++i) {
    auto claim = queue.claim(1);
    ASSERT_TRUE(claim.ok()) << i << ": " << claim.status().to_string();
    waiting.push_back(*std::move(claim));
  }
  EXPECT_EQ(queue.waiting(), limits::kWaitingMax);
  const Status refused = queue.claim(1).status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_NE(refused.message().find("too many requests"), std::string::npos);
  EXPECT_EQ(queue.watch().status().code(), Code::kResourceExhausted);
  waiting.pop_back();
  {
    const auto watch = queue.watch();
    EXPECT_TRUE(watch.ok());
    EXPECT_EQ(queue.claim(1).status().code(), Code::kResourceExhausted);
  }
  EXPECT_TRUE(queue.claim(1).ok());
}

// One token must not keep all others out of the queue.
TEST(LeaseQueueBounds, LimitsUserToShareButNotOperator) {
  LeaseQueue queue(1);
  const auto holder = queue.claim(1, "anna");
  ASSERT_TRUE(holder.ok());
  std::vector<std::shared_ptr<Claim>> waiting;
  for (std::size_t i = 1; i < limits::kWaitingOfUserMax; ++i) {
    auto claim = queue.claim(1, "anna");
    ASSERT_TRUE(claim.ok()) << i << ": " << claim.status().to_string();
    waiting.push_back(*std::move(claim));
  }
  auto watch = queue.watch("anna");
  ASSERT_TRUE(watch.ok());
  const Status refused = queue.claim(1, "anna").status();
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_NE(refused.message().find("user anna has 64 requests that wait"), std::string::npos)
      << refused.message();
  EXPECT_EQ(queue.watch("anna").status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(queue.claim(1, "ben").ok());
  EXPECT_TRUE(queue.watch("ben").ok());
  for (std::size_t i = queue.waiting(); i < limits::kWaitingMax; ++i) {
    auto claim = queue.claim(1);
    ASSERT_TRUE(claim.ok()) << i << ": " << claim.status().to_string();
    waiting.push_back(*std::move(claim));
  }
  waiting.pop_back();
  *watch = nullptr;
  EXPECT_TRUE(queue.claim(1, "anna").ok());
}

// The devices for which a worker can be prepared before a request arrives.
TEST(LeaseQueue, PredictsNextRequestFromPreviousRequest) {
  using Devices = std::vector<int>;
  LeaseQueue queue(4);
  EXPECT_EQ(queue.expected(), Devices{0});
  auto first = queue.claim(1);
  EXPECT_EQ(queue.expected(), Devices{1});
  auto two = queue.claim(2);
  EXPECT_EQ((*two)->devices(), (Devices{1, 2}));
  EXPECT_EQ(queue.expected(), (Devices{1, 2})) << "only one is free; these may come back";
  *first = nullptr;
  EXPECT_EQ(queue.expected(), (Devices{0, 3}));
  *two = nullptr;
  EXPECT_EQ(queue.expected(), (Devices{0, 1}));
}

bool changed(const Watch& watch) {
  pollfd ready = {watch.fd(), POLLIN, 0};
  return poll(&ready, 1, 0) == 1;
}

// A request that waits only for ending leases has no place among those that wait for leases in
// force.
TEST(LeaseQueue, ClaimSoonTakesFreeOrEndingGpus) {
  LeaseQueue queue(2);
  const auto watch = queue.watch();
  auto first = queue.claim(1);
  auto second = queue.claim_soon(1);
  ASSERT_TRUE(second.ok() && *second != nullptr && (*second)->granted());
  EXPECT_EQ(*queue.claim_soon(1), nullptr);
  EXPECT_EQ(queue.lacking(2), 2u);
  EXPECT_FALSE(changed(**watch));
  (*first)->end();
  EXPECT_TRUE(changed(**watch));
  (*watch)->forget();
  EXPECT_EQ(*queue.claim_soon(2), nullptr);
  EXPECT_EQ(queue.lacking(2), 1u);
  const auto next = queue.claim_soon(1);
  ASSERT_TRUE(next.ok() && *next != nullptr);
  EXPECT_FALSE((*next)->granted());
  EXPECT_EQ(queue.lacking(1), 1u) << "what comes is for who waits for it";
  EXPECT_FALSE(changed(**watch));
  *first = nullptr;
  EXPECT_TRUE(changed(**watch));
  EXPECT_TRUE((*next)->granted());
}

class LeaseBookBounds : public testing::Test {
 protected:
  void grant(LeaseBook& book, std::size_t number = 1, const char* user = "anna") {
    Lease lease;
    lease.id = numbered(number);
    lease.claim = *queue_.claim(1);
    lease.user = {user, "0a0a0a0a0a0a"};
    book.add(std::move(lease));
  }
  // The connection `index` of `count` of the session `number`.
  static Result<std::optional<Arrival>> arrive(LeaseBook& book, std::size_t number,
                                               std::uint16_t index, std::size_t lease = 1,
                                               std::uint16_t count = 2) {
    protocol::Attach attach;
    attach.lease = numbered(lease);
    attach.session = numbered(number);
    attach.index = index;
    attach.count = count;
    std::unique_ptr<transport::Connection> connection =
        std::move(transport::loopback::connect_pair().first);
    return book.arrive(attach, {}, connection);
  }
  static void expect_too_many(const Status& refused) {
    EXPECT_EQ(refused.code(), Code::kRefused);
    EXPECT_NE(refused.message().find("too many sessions"), std::string::npos) << refused.message();
  }

  // The number of connections of one lease that the book accepts before it refuses one.
  static std::size_t fill(LeaseBook& book, std::size_t lease) {
    constexpr std::size_t kEach = protocol::kConnectionsMax - 1;  // Of 16 connections, so no
                                                                  // session is complete.
    for (std::size_t taken = 0;; ++taken) {
      const auto one =
          arrive(book, lease << 32 | taken / kEach, static_cast<std::uint16_t>(taken % kEach),
                 lease, protocol::kConnectionsMax);
      if (one.ok()) continue;
      EXPECT_EQ(one.status().code(), Code::kRefused);
      EXPECT_NE(one.status().message().find("wait for their connections"), std::string::npos)
          << one.status().message();
      return taken;
    }
  }

  LeaseQueue queue_{16};
};

TEST_F(LeaseBookBounds, RefusesSessionsOverGatheringLimit) {
  LeaseBook book(std::chrono::hours(1));
  grant(book);
  for (std::size_t i = 0; i < limits::kGatheringMax; ++i) {
    const auto first = arrive(book, i, 0);
    ASSERT_TRUE(first.ok()) << i << ": " << first.status().to_string();
    EXPECT_FALSE(first->has_value());
  }
  expect_too_many(arrive(book, limits::kGatheringMax, 0).status());
  const auto whole = arrive(book, 0, 1);  // It completes one of the gathering sessions.
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  EXPECT_TRUE(whole->has_value());
  EXPECT_TRUE(arrive(book, limits::kGatheringMax, 0).ok());
}

// Each is a descriptor of the daemon.
TEST_F(LeaseBookBounds, LimitsGatheringConnectionsPerLeaseAndUser) {
  LeaseBook book(std::chrono::hours(1));
  std::size_t taken = 0, lease = 1;
  for (; taken < limits::kGatheredOfUserMax && lease < 16; ++lease) {
    grant(book, lease);
    const std::size_t now = fill(book, lease);
    EXPECT_LE(now, limits::kGatheredOfLeaseMax);
    EXPECT_GT(now, 0u);
    taken += now;
  }
  EXPECT_EQ(taken, limits::kGatheredOfUserMax);
  grant(book, lease);
  EXPECT_EQ(fill(book, lease), 0u) << "of the same user";
  grant(book, 16, "ben");
  EXPECT_EQ(fill(book, 16), limits::kGatheredOfLeaseMax);
  EXPECT_EQ(book.remove(numbered(1)).size(), limits::kGatheredOfLeaseMax);
  EXPECT_EQ(fill(book, lease), limits::kGatheredOfLeaseMax) << "what was dropped has no place";
}

// Sessions that wait for their workers to start hold their connections, too.
TEST_F(LeaseBookBounds, CompleteSessionCountsUntilItsWorkerStarts) {
  LeaseBook book(std::chrono::hours(1));
  grant(book);
  std::vector<Arrival> arrivals;
  for (std::size_t i = 0; i < limits::kGatheredOfUserMax / 2; ++i) {
    ASSERT_TRUE(arrive(book, i, 0).ok()) << i;
    auto whole = arrive(book, i, 1);
    ASSERT_TRUE(whole.ok() && whole->has_value()) << i;
    arrivals.push_back(*std::move(*whole));
  }
  EXPECT_FALSE(arrive(book, limits::kGatheredOfUserMax, 0).ok());
  book.settled(arrivals.front().lease, arrivals.front().order.connections.size());
  EXPECT_TRUE(arrive(book, limits::kGatheredOfUserMax, 0).ok());
}

// Closing a connection may take long. No other user of the book waits for it.
TEST_F(LeaseBookBounds, DropLateReturnsConnectionsToCaller) {
  LeaseBook late(std::chrono::milliseconds(0));
  grant(late);
  ASSERT_TRUE(arrive(late, 1, 0).ok());
  ASSERT_TRUE(arrive(late, 2, 1).ok());
  const auto dropped = late.drop_late();
  ASSERT_EQ(dropped.size(), 2u);
  for (const auto& connection : dropped) EXPECT_NE(connection, nullptr);
  EXPECT_EQ(late.gathering(), 0u);
  EXPECT_TRUE(late.remove(numbered(1)).empty());
}

class SlowToClose final : public transport::Connection {
 public:
  explicit SlowToClose(std::shared_future<void> until) : until_(std::move(until)) {}
  ~SlowToClose() override { until_.wait(); }
  const transport::Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }
  Status send(std::span<const ByteView>, Deadline) override { return {}; }
  Result<std::size_t> receive(MutableBytes, std::size_t, Deadline) override {
    return std::size_t{0};
  }
  void shut_down() noexcept override {}

 private:
  const std::shared_future<void> until_;
  const transport::Capabilities capabilities_;
  const std::string description_ = "slow";
};

TEST(ConnectionCloser, CloseDoesNotBlockAndStopClosesAll) {
  std::promise<void> closed;
  ConnectionCloser closer;
  closer.start();
  closer.close(std::make_unique<SlowToClose>(closed.get_future().share()));
  closer.close(std::move(transport::loopback::connect_pair().first));
  EXPECT_GE(closer.backlog(), 1u) << "close() has returned, and the first is not closed";
  closed.set_value();
  closer.stop();
  EXPECT_EQ(closer.backlog(), 0u);
}

TEST_F(LeaseBookBounds, RefusesSessionsOverAttachLimit) {
  constexpr std::size_t kMost = 3;  // Like limits::kSessionsMax, which would take a minute.
  LeaseBook book(std::chrono::hours(1), kMost);
  grant(book);
  for (std::size_t i = 0; i < kMost; ++i) {
    ASSERT_TRUE(arrive(book, i, 0).ok());
    const auto whole = arrive(book, i, 1);
    ASSERT_TRUE(whole.ok() && whole->has_value());
  }
  expect_too_many(arrive(book, kMost, 0).status());
}

}  // namespace
}  // namespace gpurun::server
