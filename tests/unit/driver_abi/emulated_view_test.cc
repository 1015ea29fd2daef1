// Emulated view: NVIDIA's math libraries compute on the emulated device because they see a compute
// capability that they do not know. All other callers must see the real one. The test uses the file
// names under which programs load the libraries.
#include "driver_abi/emulated_view.h"

#include <gtest/gtest.h>

namespace gpurun::driver_abi {
namespace {

TEST(EmulatedView, RecognisesMathLibraries) {
  for (const char* path : {"/usr/local/cuda/lib64/libcublas.so.13", "libcublasLt.so.13",
                           "./libcudnn_ops.so.9", "/a b/libcudnn.so.9", "/x/libcusolver.so.12",
                           "/x/libcusparse.so.12.6.3", "/x/libcufft.so.12", "/x/libcurand.so.10"}) {
    EXPECT_TRUE(chooses_code_by_capability(path)) << path;
  }
}

TEST(EmulatedView, IgnoresOtherCallers) {
  for (const char* path :
       {"/usr/bin/program", "/x/libcublas/program", "/x/libcudart.so.13", "/x/libnccl.so.2",
        "/x/libnvrtc.so.13", "/x/mylibcublas.so", "/x/", ""}) {
    EXPECT_FALSE(chooses_code_by_capability(path)) << path;
  }
  EXPECT_FALSE(chooses_code_by_capability(nullptr));
}

}  // namespace
}  // namespace gpurun::driver_abi
