// FreeTickets: a free shares the ticket of an earlier one only if both wait for the same work, and
// needs no ticket once that work is complete.
#include "client/session/free_tickets.h"

#include <gtest/gtest.h>

namespace gpurun::client {
namespace {

using Answer = FreeTickets::Answer;

constexpr Handle kContext = 7, kOther = 8;
constexpr std::uint32_t kLane = 1, kOtherLane = 2;

class FreeTicketsTest : public ::testing::Test {
 protected:
  Answer ask(const FreeTickets::Free& free) { return tickets_.ask(free, &shared_); }

  FreeTickets tickets_;
  std::uint64_t shared_ = 0;
};

TEST_F(FreeTicketsTest, FreeWithoutNewWorkSharesTicketUntilItComesBack) {
  const FreeTickets::Free free{kContext, kLane, 100, true};
  EXPECT_EQ(ask(free), Answer::kReport);
  tickets_.reported(free, 5);
  EXPECT_EQ(ask(free), Answer::kShare);
  EXPECT_EQ(shared_, 5u);
  tickets_.done(4);
  EXPECT_EQ(ask(free), Answer::kShare);
  tickets_.done(5);
  EXPECT_EQ(ask(free), Answer::kUnused);
}

TEST_F(FreeTicketsTest, NewWorkNeedsReport) {
  tickets_.reported({kContext, kLane, 100, true}, 5);
  EXPECT_EQ(ask({kContext, kLane, 101, true}), Answer::kReport);
  EXPECT_EQ(ask({kOther, kLane, 100, true}), Answer::kReport);
  tickets_.done(5);
  EXPECT_EQ(ask({kContext, kLane, 101, true}), Answer::kReport);
  EXPECT_EQ(ask({kContext, kLane, FreeTickets::kUnknownWork, true}), Answer::kReport);
  tickets_.reported({kContext, kLane, 101, true}, 6);
  EXPECT_EQ(ask({kContext, kLane, 101, true}), Answer::kShare);
  EXPECT_EQ(shared_, 6u);
}

TEST_F(FreeTicketsTest, UnknownWorkIsNeverShared) {
  const FreeTickets::Free free{kContext, kLane, FreeTickets::kUnknownWork, true};
  tickets_.reported(free, 5);
  EXPECT_EQ(ask(free), Answer::kReport);
  tickets_.done(5);
  EXPECT_EQ(ask(free), Answer::kReport);
}

TEST_F(FreeTicketsTest, OtherLaneSharesOnlyCompleteWork) {
  tickets_.reported({kContext, kLane, 100, true}, 5);
  EXPECT_EQ(ask({kContext, kOtherLane, 100, true}), Answer::kReport);
  tickets_.done(5);
  EXPECT_EQ(ask({kContext, kOtherLane, 100, true}), Answer::kUnused);
}

TEST_F(FreeTicketsTest, FreeInOrderDoesNotShareTicketOfFreeWithoutOrder) {
  tickets_.reported({kContext, kLane, 100, false}, 5);
  EXPECT_EQ(ask({kContext, kLane, 100, true}), Answer::kReport);
  EXPECT_EQ(ask({kContext, kLane, 100, false}), Answer::kShare);
  tickets_.reported({kContext, kLane, 100, true}, 6);
  EXPECT_EQ(ask({kContext, kLane, 100, false}), Answer::kShare);
  EXPECT_EQ(shared_, 6u);
}

TEST_F(FreeTicketsTest, EndedContextLeavesNothing) {
  tickets_.reported({kContext, kLane, 100, true}, 5);
  tickets_.reported({kOther, kLane, 100, true}, 6);
  tickets_.forget(kContext);
  tickets_.done(5);
  EXPECT_EQ(ask({kContext, kLane, 100, true}), Answer::kReport);
  EXPECT_EQ(ask({kOther, kLane, 100, true}), Answer::kShare);
}

}  // namespace
}  // namespace gpurun::client
