// Coverage check: nothing is accepted without a test. Every variant in the translator's table was
// executed by a test of this program that compares its results.
#include <gtest/gtest.h>

#include "emulated/codegen/variant_table.h"
#include "kernel_harness.h"

namespace gpurun::emulated {
namespace {

constexpr std::size_t kNamesShown = 100;

class EveryVariantIsExecuted : public testing::Environment {
 public:
  void TearDown() override {
    // A selection of tests cannot cover all variants.
    if (testing::GTEST_FLAG(filter) != "*" || testing::UnitTest::GetInstance()->Failed()) return;
    if (tier_counts().regions != 0) {
      EXPECT_GT(tier_counts().regions, tier_counts().threads) << "kernels that had no fast form";
    }
    std::size_t missing = 0;
    std::string names;
    for (const std::string& variant : accepted_variants()) {
      if (recorded_variants().contains(variant_key(variant))) continue;
      if (++missing <= kNamesShown) names += "\n  " + variant;
    }
    EXPECT_EQ(missing, 0u) << "accepted without a test:" << names;
  }
};

[[maybe_unused]] const auto* const kRegistered =
    testing::AddGlobalTestEnvironment(new EveryVariantIsExecuted);

}  // namespace
}  // namespace gpurun::emulated
