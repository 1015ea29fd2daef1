// nvrtc: a kernel compiled to PTX at run time, loaded and launched, and an error that NVRTC
// reports.
#include <cuda.h>
#include <nvrtc.h>

#include <string>

#include "check.h"

namespace {

const char* const kSource = R"(
template <typename T> __device__ T twice(T value) { return value + value; }
extern "C" __global__ void add_twice(float* out, const float* in, int count) {
  __shared__ float shared[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  shared[threadIdx.x] = i < count ? in[i] : 0;
  __syncthreads();
  if (i < count) out[i] = twice(shared[threadIdx.x]) + sqrtf(static_cast<float>(i));
}
)";

std::string compile(const char* source, nvrtcResult expected) {
  nvrtcProgram program = nullptr;
  MUST(nvrtcCreateProgram(&program, source, "kernel.cu", 0, nullptr, nullptr));
  int major = 0, minor = 0;
  MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  MUST(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  const std::string architecture =
      "--gpu-architecture=compute_" + std::to_string(major) + std::to_string(minor);
  const char* options[] = {architecture.c_str()};
  const nvrtcResult result = nvrtcCompileProgram(program, 1, options);
  if (result != expected) {
    std::printf("FAILED: nvrtcCompileProgram: %s\n", nvrtcGetErrorString(result));
    std::exit(1);
  }
  std::string ptx;
  if (result == NVRTC_SUCCESS) {
    std::size_t bytes = 0;
    MUST(nvrtcGetPTXSize(program, &bytes));
    ptx.resize(bytes);
    MUST(nvrtcGetPTX(program, ptx.data()));
  }
  MUST(nvrtcDestroyProgram(&program));
  return ptx;
}

}  // namespace

int main() {
  constexpr int kCount = 1000;
  MUST(cudaFree(nullptr));
  (void)compile("this is no program", NVRTC_ERROR_COMPILATION);
  const std::string ptx = compile(kSource, NVRTC_SUCCESS);
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  MUST(cuModuleLoadData(&module, ptx.data()));
  MUST(cuModuleGetFunction(&function, module, "add_twice"));
  const std::vector<float> in = some_values(kCount, 9);
  const DeviceArray<float> device_in(in), out(kCount);
  float *out_pointer = out.get(), *in_pointer = device_in.get();
  int count = kCount;
  void* arguments[] = {&out_pointer, &in_pointer, &count};
  MUST(
      cuLaunchKernel(function, (kCount + 63) / 64, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
  std::vector<double> right(kCount);
  for (int i = 0; i < kCount; ++i) right[i] = 2.0 * in[i] + std::sqrt(static_cast<double>(i));
  expect_close("a kernel compiled here", out.read(), right, 1e-6);
  std::printf("PASSED\n");
  return 0;
}
