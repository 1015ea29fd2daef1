// cuGetErrorName() and cuGetErrorString(): correct for every code, because programs print them, and
// tests compare them.
#include "driver_abi/error_codes.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace gpurun::driver_abi {
namespace {

TEST(ErrorCodesTest, CodesAscendWithNameAndText) {
  for (std::size_t i = 0; i < error_code_count(); ++i) {
    EXPECT_TRUE(i == 0 || error_code(i - 1) < error_code(i)) << i;
    const char* text = nullptr;
    EXPECT_EQ(get_error_name(error_code(i), &text), CUDA_SUCCESS);
    EXPECT_EQ(std::string(text).rfind("CUDA_", 0), 0U);
    EXPECT_EQ(get_error_string(error_code(i), &text), CUDA_SUCCESS);
    EXPECT_GT(std::string(text).size(), 4U);
  }
  EXPECT_STREQ(error_name(static_cast<CUresult>(719)), "CUDA_ERROR_LAUNCH_FAILED");
}

// Every enumerator has its row in the table, so that a new one is not forgotten.
TEST(ErrorCodesTest, TableCoversEveryCudaResult) {
  std::ifstream types(GPURUN_SOURCE_DIR "/driver_abi/cuda_types.toml");
  std::string line;
  std::size_t count = 0;
  bool inside = false;
  while (std::getline(types, line)) {
    if (line.rfind("[", 0) == 0) inside = line == "[enum.CUresult]";
    if (!inside || line.rfind("CUDA_", 0) != 0) continue;
    const std::string name = line.substr(0, line.find(' '));
    const int value = std::stoi(line.substr(line.find('=') + 1));
    const char* ours = error_name(static_cast<CUresult>(value));
    ASSERT_NE(ours, nullptr) << name;
    EXPECT_EQ(ours, name);
    ++count;
  }
  EXPECT_EQ(count, error_code_count());
}

TEST(ErrorCodesTest, UnknownCodeReturnsInvalidValueAndNull) {
  const char* text = "untouched";
  EXPECT_EQ(get_error_name(static_cast<CUresult>(1001), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(get_error_string(CUDA_SUCCESS, nullptr), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpurun::driver_abi
