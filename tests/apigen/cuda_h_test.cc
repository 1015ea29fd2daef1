// Comparison of our generated header with NVIDIA's cuda.h. Programs are compiled against cuda.h and
// call us, so a different size, offset, value or parameter corrupts the program's memory. Both
// headers compile the same list of expressions, and every value must agree.
#include <gtest/gtest.h>

#include <map>

#include "driver_abi/row.h"
#include "tests/apigen/facts.h"

namespace {

TEST(GeneratedHeader, PrototypesMatchTable) {
  std::size_t prototypes = 0;
  for (const auto& [name, value] : facts_of_our_header()) {
    if (name.rfind("prototype ", 0) != 0) continue;
    ++prototypes;
    EXPECT_EQ(value, 1u) << name;
  }
  EXPECT_EQ(prototypes, gpurun::driver_abi::rows().size());
}

// A toolkit older than the table lacks some facts (tests/apigen/facts.py leaves them out), but has
// all of CUDA 13.0's. A toolkit of our version has almost all of ours.
TEST(GeneratedHeader, AgreesWithCudaH) {
  constexpr std::size_t kFactsOf13 = 3000;
  const Facts theirs = facts_of_cuda_h();
  if (theirs.empty()) GTEST_SKIP() << "no cuda.h of CUDA 13 on this machine";
  EXPECT_GT(theirs.size(), kFactsOf13);
  std::map<std::string, std::uint64_t> ours;
  for (const auto& [name, value] : facts_of_our_header()) ours[name] = value;
  std::vector<std::string> different;
  for (const auto& [name, value] : theirs) {
    if (ours.at(name) != value) different.push_back(name);
  }
  if (version_of_cuda_h() > version_of_our_header() && !different.empty()) {
    GTEST_SKIP() << "cuda.h is newer than the table and says otherwise of "
                 << testing::PrintToString(different);
  }
  EXPECT_EQ(different, std::vector<std::string>());
}

}  // namespace
