// Kernels: a module and a library of the same PTX text, live on both sides, and arguments for their
// kernels.
#pragma once

#include <string>

#include "tests/parity/custom/trial_cuda.h"

namespace gpurun::parity {

inline constexpr char kPtx[] = R"(.version 8.0
.target sm_50
.address_size 64
.visible .global .align 8 .b8 table[4096];
.visible .entry add(
  .param .u64 .ptr .global .align 4 add_a,
  .param .u32 add_n,
  .param .align 8 .b8 add_s[24]
) { ret; }
.visible .entry scale(
  .param .u16 scale_a,
  .param .f64 scale_b
) { ret; }
.visible .entry nothing() { ret; }
)";

// An image that neither side has seen before.
std::string new_image(Trial& t);

// The parameters of kernel `add`, in the layout of its block.
struct AddBlock {
  CUdeviceptr a = 0;
  unsigned n = 0;
  unsigned gap = 0;
  unsigned char s[24] = {};
};

// Not copyable, because it points into itself.
class AddArguments {
 public:
  explicit AddArguments(Trial& t);
  AddArguments(const AddArguments&) = delete;
  AddArguments& operator=(const AddArguments&) = delete;

  void** pointers() { return pointers_; }  // For kernelParams.
  void** extra() { return extra_; }

 private:
  AddBlock block_;
  std::size_t bytes_ = sizeof block_;
  void* pointers_[3] = {&block_.a, &block_.n, block_.s};
  void* extra_[5] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block_, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes_,
                     CU_LAUNCH_PARAM_END};
};

Both<CUmodule> new_module(Trial& t, const std::string& image = kPtx);
Both<CUlibrary> new_library(Trial& t, const std::string& image = kPtx);
Both<CUfunction> function_of(Trial& t, const Both<CUmodule>& module, const char* name);
Both<CUkernel> kernel_of(Trial& t, const Both<CUlibrary>& library, const char* name);
// `add` as a function or, where cuda.h allows it, as a kernel.
Both<CUfunction> any_function(Trial& t);

}  // namespace gpurun::parity
