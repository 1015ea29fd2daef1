// Client library as a file: it exports CUDA's functions, and needs nothing else to be loaded.
// Without gpurun it reports that no device exists, at no cost.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"

namespace gpurun {
namespace {

void* library() {
  static void* const opened = dlopen(CLIENT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  return opened;
}

template <typename Function>
Function* find(const char* symbol) {
  return reinterpret_cast<Function*>(dlsym(library(), symbol));
}

TEST(ClientLibrary, ExportsEveryDriverFunction) {
  ASSERT_NE(library(), nullptr) << dlerror();
  for (const driver_abi::Row& row : driver_abi::rows()) {
    EXPECT_NE(dlsym(library(), row.symbol), nullptr) << row.symbol;
  }
}

TEST(ClientLibrary, ReportsNoDeviceWithoutSession) {
  ASSERT_EQ(unsetenv("GPURUN_SESSION"), 0);
  int version = 0;
  EXPECT_EQ(find<CUresult(int*)>("cuDriverGetVersion")(&version), CUDA_SUCCESS);
  EXPECT_EQ(version, CUDA_VERSION);
  EXPECT_EQ(find<CUresult(unsigned)>("cuInit")(0), CUDA_ERROR_NO_DEVICE);
  int count = -1;
  EXPECT_EQ(find<CUresult(int*)>("cuDeviceGetCount")(&count), CUDA_ERROR_NOT_INITIALIZED);
}

TEST(ClientLibrary, StaysLoadedAfterDlclose) {
  auto* const name = find<CUresult(CUresult, const char**)>("cuGetErrorName");
  ASSERT_EQ(dlclose(library()), 0);
  const char* text = nullptr;
  EXPECT_EQ(name(CUDA_SUCCESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_SUCCESS");
}

}  // namespace
}  // namespace gpurun
