// Free answers: a call that frees memory waits unless the program cannot notice. It never waits for
// a context that captures, and sends nothing that the worker does not understand.
#include "client/early_answers/free_answers.h"

#include <gtest/gtest.h>

namespace gpurun::client {
namespace {

FreeAnswer decided(bool early, bool captures, bool complete, bool worker_keeps_order) {
  return answer_free({early, captures, complete, worker_keeps_order});
}

TEST(FreeAnswers, EarlyFreeKeepsItsPlaceInTheDevicesOrder) {
  EXPECT_EQ(decided(true, false, false, true), FreeAnswer::kPost);
  EXPECT_EQ(decided(true, true, false, true), FreeAnswer::kPost);
}

TEST(FreeAnswers, FreeThatTheProgramCouldNoticeWaits) {
  for (const bool complete : {false, true}) {
    for (const bool keeps_order : {false, true}) {
      EXPECT_EQ(decided(false, false, complete, keeps_order), FreeAnswer::kAwaitContext);
    }
  }
}

TEST(FreeAnswers, CaptureForbidsWaitForTheContext) {
  EXPECT_EQ(decided(false, true, false, true), FreeAnswer::kAwait) << "for its earlier work only";
  for (const bool early : {false, true}) {
    for (const bool complete : {false, true}) {
      EXPECT_EQ(decided(early, true, complete, false), FreeAnswer::kNothing);
    }
  }
}

TEST(FreeAnswers, CompleteContextCostsNoRequest) {
  for (const bool keeps_order : {false, true}) {
    EXPECT_EQ(decided(true, false, true, keeps_order), FreeAnswer::kNothing);
  }
  EXPECT_EQ(decided(false, true, true, true), FreeAnswer::kNothing);
}

TEST(FreeAnswers, OlderWorkerGetsNoRecord) {
  EXPECT_EQ(decided(true, false, false, false), FreeAnswer::kAwaitContext);
}

}  // namespace
}  // namespace gpurun::client
