// Dispatch rows: codec and libffi can carry every generated row of the real table. Otherwise a row
// would fail only when a program first calls it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver_abi/row.h"
#include "protocol/calls/call.h"
#include "server/driver/foreign_call.h"

namespace gpurun::server {
namespace {

using driver_abi::Completion;
using driver_abi::Direction;
using driver_abi::Implementation;
using driver_abi::Shape;

bool served_from_the_row(const driver_abi::Row& row) {
  return row.implementation == Implementation::kGenerated &&
         row.completion != Completion::kRefused && row.completion != Completion::kLocal;
}

TEST(DispatchRows, EveryGeneratedRowCanBeCalled) {
  int served = 0;
  for (const driver_abi::Row& row : driver_abi::rows()) {
    if (!served_from_the_row(row)) continue;
    const auto call = ForeignCall::prepare(row);
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    ++served;
  }
  EXPECT_GT(served, 150);
}

// No thread waits for the outputs of an asynchronous call, except for handles that the client
// mints.
TEST(DispatchRows, AsynchronousRowsOutputOnlyMintedHandles) {
  for (const driver_abi::Row& row : driver_abi::rows()) {
    if (!served_from_the_row(row) || row.completion != Completion::kAsync) continue;
    for (const driver_abi::Parameter& parameter : row.parameters) {
      if (parameter.direction == Direction::kIn) continue;
      EXPECT_EQ(parameter.shape, Shape::kHandlePointee) << row.symbol << ": " << parameter.name;
    }
  }
}

// Both ends compute the size of an array separately, before the call.
TEST(DispatchRows, CountParametersAreVisibleToBothEnds) {
  for (const driver_abi::Row& row : driver_abi::rows()) {
    if (!served_from_the_row(row)) continue;
    for (const driver_abi::Parameter& parameter : row.parameters) {
      if (parameter.count_parameter == driver_abi::kNoParameter) continue;
      ASSERT_LT(parameter.count_parameter, row.parameters.size()) << row.symbol;
      const driver_abi::Parameter& counter = row.parameters[parameter.count_parameter];
      const bool seen = counter.shape == Shape::kScalar ||
                        (counter.shape == Shape::kPointee && counter.direction != Direction::kOut);
      EXPECT_TRUE(seen) << row.symbol << ": " << parameter.name;
    }
  }
}

}  // namespace
}  // namespace gpurun::server
