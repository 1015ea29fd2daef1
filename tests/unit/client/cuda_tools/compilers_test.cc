// Compilers: a compilation to machine code gets line information once, and every other one goes on
// as the program has written it.
#include "client/cuda_tools/compilers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gpurun::client::cuda_tools {
namespace {

using testing::ElementsAre;

constexpr int kFailed = 6, kUnknownOption = 5;

std::vector<std::vector<std::string>> calls;
int result_with_lines = 0;

int record(void* object, int count, const char* const* options) {
  EXPECT_EQ(object, &calls);
  calls.emplace_back(options, options + count);
  return calls.size() == 1 ? result_with_lines : 0;
}

bool lacks(std::vector<const char*> options, Compiler compiler = Compiler::kNvrtc) {
  return lacks_lines(compiler, static_cast<int>(options.size()), options.data());
}

int compile(std::vector<const char*> options, int result) {
  calls.clear();
  result_with_lines = result;
  return compile_with_lines(Compiler::kNvrtc, record, &calls, static_cast<int>(options.size()),
                            options.data());
}

TEST(Compilers, MachineCodeLacksLines) {
  EXPECT_TRUE(lacks({"-arch=sm_80"}));
  EXPECT_TRUE(lacks({"-std=c++17", "--gpu-architecture=sm_121a"}));
  EXPECT_TRUE(lacks({"-arch", "sm_90", "-rdc=true"}));
  EXPECT_TRUE(lacks({"--gpu-name=sm_80"}, Compiler::kPtx));
  EXPECT_TRUE(lacks({}, Compiler::kPtx));
}

TEST(Compilers, OtherCompilationsLackNone) {
  EXPECT_FALSE(lacks({}));
  EXPECT_FALSE(lacks({"-arch=compute_80"}));
  EXPECT_FALSE(lacks({"-DNAME=sm_80"}));
  for (const char* option : {"-lineinfo", "--generate-line-info", "-G", "-g", "--device-debug",
                             "-dlto", "--dlink-time-opt"}) {
    EXPECT_FALSE(lacks({"-arch=sm_80", option})) << option;
  }
  EXPECT_FALSE(lacks({"-arch=sm_80", nullptr}));
  EXPECT_FALSE(lacks_lines(Compiler::kPtx, -1, nullptr));
}

TEST(Compilers, AddsTheOption) {
  EXPECT_EQ(compile({"-arch=sm_80"}, kFailed), kFailed);
  EXPECT_THAT(calls, ElementsAre(ElementsAre("-arch=sm_80", "--generate-line-info")));
  EXPECT_EQ(compile({"-lineinfo", "-arch=sm_80"}, 0), 0);
  EXPECT_THAT(calls, ElementsAre(ElementsAre("-lineinfo", "-arch=sm_80")));
}

TEST(Compilers, RepeatsWithoutAnUnknownOption) {
  EXPECT_EQ(compile({"-arch=sm_80"}, kUnknownOption), 0);
  EXPECT_THAT(calls, ElementsAre(testing::SizeIs(2), ElementsAre("-arch=sm_80")));
}

template <int kNumber>
int numbered(void* /*object*/, int /*count*/, const char* const* /*options*/) {
  return kNumber;
}

template <int... kNumbers>
std::vector<Compile*> numbered_functions(std::integer_sequence<int, kNumbers...> /*unused*/) {
  return {&numbered<kNumbers>...};
}

TEST(Compilers, EachHasAFrontUpToTheBound) {
  const auto functions =
      numbered_functions(std::make_integer_sequence<int, static_cast<int>(kFrontsMax) + 1>());
  std::set<Compile*> fronts;
  for (std::size_t at = 0; at < kFrontsMax; ++at) {
    Compile* front = in_front_of(Compiler::kNvrtc, functions[at]);
    EXPECT_NE(front, functions[at]);
    EXPECT_EQ(front, in_front_of(Compiler::kNvrtc, functions[at]));
    EXPECT_EQ(front(nullptr, 0, nullptr), static_cast<int>(at));
    fronts.insert(front);
  }
  EXPECT_EQ(fronts.size(), kFrontsMax);
  EXPECT_EQ(in_front_of(Compiler::kNvrtc, functions.back()), functions.back());
  EXPECT_NE(in_front_of(Compiler::kPtx, functions.back()), functions.back());
}

}  // namespace
}  // namespace gpurun::client::cuda_tools
