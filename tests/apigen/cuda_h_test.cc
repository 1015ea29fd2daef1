// Programs are compiled against NVIDIA's cuda.h and call us: a size, offset, value or parameter
// that differs is memory corruption in somebody else's process. Method: the same list of
// expressions is compiled over our generated header and over cuda.h, and every value must agree.
#include <gtest/gtest.h>

#include "tests/apigen/facts.h"

namespace {

TEST(OurHeader, AgreesWithItself) {
  std::size_t prototypes = 0;
  for (const auto& [name, value] : facts_of_our_header()) {
    if (name.rfind("prototype ", 0) != 0) continue;
    ++prototypes;
    EXPECT_EQ(value, 1u) << name;
  }
  EXPECT_EQ(prototypes, 637u);
}

TEST(OurHeader, AgreesWithCudaH) {
  const Facts ours = facts_of_our_header();
  const Facts theirs = facts_of_cuda_h();
  if (theirs.empty()) GTEST_SKIP() << "no cuda.h of CUDA 13.0 on this machine";
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].second, theirs[i].second) << ours[i].first;
  }
}

}  // namespace
