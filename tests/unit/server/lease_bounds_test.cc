// Protects gpurund's memory from those who have a ticket: requests that wait, sessions that gather
// and sessions that have attached are bounded, and who is within the bounds is served at them.
#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "protocol/limits.h"
#include "server/daemon/lease_book.h"
#include "server/daemon/lease_queue.h"
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

TEST(LeaseQueueBounds, OneMoreRequestThanMayWaitIsRefused) {
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
TEST(LeaseQueueBounds, AUserHasAShareOfTheQueueAndTheOperatorAllOfIt) {
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

// What a worker can be made ready for before anybody has asked.
TEST(LeaseQueue, ExpectsTheNextRequestToBeAsTheLastOne) {
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

// A request that waits for no lease in force has no place among those that do.
TEST(LeaseQueue, ClaimsWhatComesSoonAndTellsWhenMoreDoes) {
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
  void grant(LeaseBook& book) {
    Lease lease;
    lease.id = numbered(1);
    lease.claim = *queue_.claim(1);
    book.add(std::move(lease));
  }
  // The connection `index` of two of the session `number`.
  static Result<std::optional<Arrival>> arrive(LeaseBook& book, std::size_t number,
                                               std::uint16_t index) {
    protocol::Attach attach;
    attach.lease = numbered(1);
    attach.session = numbered(number);
    attach.index = index;
    attach.count = 2;
    std::unique_ptr<transport::Connection> connection =
        std::move(transport::loopback::connect_pair().first);
    return book.arrive(attach, {}, connection);
  }
  static void expect_too_many(const Status& refused) {
    EXPECT_EQ(refused.code(), Code::kRefused);
    EXPECT_NE(refused.message().find("too many sessions"), std::string::npos) << refused.message();
  }

  LeaseQueue queue_{1};
};

TEST_F(LeaseBookBounds, OneMoreSessionThanMayGatherIsRefusedAndTheOthersGoOn) {
  LeaseBook book(std::chrono::hours(1));
  grant(book);
  for (std::size_t i = 0; i < limits::kGatheringMax; ++i) {
    const auto first = arrive(book, i, 0);
    ASSERT_TRUE(first.ok()) << i << ": " << first.status().to_string();
    EXPECT_FALSE(first->has_value());
  }
  expect_too_many(arrive(book, limits::kGatheringMax, 0).status());
  const auto whole = arrive(book, 0, 1);  // Is of those that gather.
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  EXPECT_TRUE(whole->has_value());
  EXPECT_TRUE(arrive(book, limits::kGatheringMax, 0).ok());
}

TEST_F(LeaseBookBounds, OneMoreSessionThanMayEverAttachIsRefused) {
  constexpr std::size_t kMost = 3;  // As limits::kSessionsMax, which would take a minute.
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
