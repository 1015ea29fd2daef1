// Capture rules: a call that a capture must refuse but does not is missing in the graph, which
// gives a wrong result without an error. The test compares the modes with cuda.h, and each function
// that takes its turn in a stream with the families.
#include "driver_abi/semantics/capture_rules.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "driver_abi/row.h"

namespace gpurun::driver_abi {
namespace {

constexpr unsigned kGlobal = 0, kThreadLocal = 1, kRelaxed = 2;

// Source: cuda.h, cuThreadExchangeStreamCaptureMode.
TEST(CaptureModes, GlobalCaptureAlsoBindsOtherThreads) {
  for (const unsigned own : {kGlobal, kThreadLocal, kRelaxed}) {
    EXPECT_FALSE(mode_prohibits(own, kRelaxed, true)) << own;
    EXPECT_FALSE(mode_prohibits(own, kRelaxed, false)) << own;
    EXPECT_FALSE(mode_prohibits(own, kThreadLocal, false)) << own;
    EXPECT_EQ(mode_prohibits(own, kThreadLocal, true), own != kRelaxed) << own;
    EXPECT_EQ(mode_prohibits(own, kGlobal, true), own != kRelaxed) << own;
    EXPECT_EQ(mode_prohibits(own, kGlobal, false), own == kGlobal) << own;
  }
}

TEST(CaptureRules, RulesAreIndexedByFamily) {
  for (int i = 0; i <= static_cast<int>(CaptureFamily::kEvent); ++i) {
    EXPECT_EQ(static_cast<int>(capture_rule(static_cast<CaptureFamily>(i)).family), i);
  }
}

TEST(CaptureRules, FamilyIsFoundByBaseName) {
  EXPECT_EQ(capture_family("cuMemAlloc"), CaptureFamily::kUnsafe);
  EXPECT_EQ(capture_family("cuMemAllocAsync"), CaptureFamily::kWork);
  EXPECT_EQ(capture_family("cuMemcpy"), CaptureFamily::kWaits);
  EXPECT_EQ(capture_family("cuMemcpyAsync"), CaptureFamily::kWork);
  EXPECT_EQ(capture_family("cuMemsetD2D8"), CaptureFamily::kWork);
  EXPECT_EQ(capture_family("cuModuleLoadDataEx"), CaptureFamily::kOpen);
  EXPECT_EQ(capture_family("cuModuleUnload"), CaptureFamily::kUnsafe);
  EXPECT_EQ(capture_family("cuStreamGetPriority"), CaptureFamily::kOpen);
  EXPECT_EQ(capture_family("cuMemAlloc_v2"), CaptureFamily::kOpen);  // Not a base name.
  EXPECT_EQ(capture_family(""), CaptureFamily::kOpen);
}

// When you add a function that enqueues in a stream, say here or in the table what captures do.
TEST(CaptureRules, EveryStreamFunctionHasFamily) {
  const std::set<std::string> open = {"cuStreamBeginCapture",   "cuStreamBeginCaptureToGraph",
                                      "cuStreamEndCapture",     "cuStreamDestroy",
                                      "cuStreamAttachMemAsync", "cuMemPrefetchAsync",
                                      "cuMemMapArrayAsync",     "cuMemPrefetchBatchAsync",
                                      "cuMemDiscardBatchAsync", "cuMemDiscardAndPrefetchBatchAsync",
                                      "cuStreamCopyAttributes", "cuStreamGetAttribute",
                                      "cuStreamSetAttribute",   "cuStreamGetCtx",
                                      "cuStreamGetDevice",      "cuStreamGetFlags",
                                      "cuStreamGetGreenCtx",    "cuStreamGetId",
                                      "cuStreamGetPriority"};
  for (const Row& row : rows()) {
    if (row.stream_parameter == kNoParameter || row.completion == Completion::kRefused) continue;
    EXPECT_NE(capture_family(row.base) == CaptureFamily::kOpen, open.count(row.base) == 0)
        << row.base;
  }
}

}  // namespace
}  // namespace gpurun::driver_abi
