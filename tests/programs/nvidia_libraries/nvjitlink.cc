// nvjitlink: two PTX texts, where one calls the other's function, and the same from LTO-IR of
// NVRTC, linked to a "cubin" that is loaded and launched. Also an undefined name, which nvJitLink
// itself reports. On an emulated device this needs gpurun's stand-in (gpurun-emulated(7)).
#include <cuda.h>
#include <nvJitLink.h>
#include <nvrtc.h>

#include <string>
#include <vector>

#include "check.h"

namespace {

const char* const kCaller = R"(
extern __device__ float weigh(float value, int index);
extern "C" __global__ void weigh_all(float* out, const float* in, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = weigh(in[i], i);
}
)";
const char* const kCallee = R"(
__constant__ float offset = 0.5f;
__device__ float weigh(float value, int index) {
  return value * static_cast<float>(index) + offset;
}
)";

std::string architecture() {
  int major = 0, minor = 0;
  MUST(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  MUST(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  return std::to_string(major) + std::to_string(minor);
}

// Returns PTX, or LTO-IR.
std::string compile(const char* source, bool lto) {
  nvrtcProgram program = nullptr;
  MUST(nvrtcCreateProgram(&program, source, "part.cu", 0, nullptr, nullptr));
  const std::string target = "--gpu-architecture=compute_" + architecture();
  const char* options[] = {target.c_str(), lto ? "-dlto" : "-rdc=true"};
  MUST(nvrtcCompileProgram(program, 2, options));
  std::size_t bytes = 0;
  MUST(lto ? nvrtcGetLTOIRSize(program, &bytes) : nvrtcGetPTXSize(program, &bytes));
  std::string code(bytes, '\0');
  MUST(lto ? nvrtcGetLTOIR(program, code.data()) : nvrtcGetPTX(program, code.data()));
  MUST(nvrtcDestroyProgram(&program));
  return code;
}

// Returns the image. Empty when nvJitLink has refused, with the reason in *log.
std::vector<char> link(const std::vector<std::string>& parts, bool lto, std::string* log) {
  const std::string target = "-arch=sm_" + architecture();
  const char* options[] = {target.c_str(), "-lto"};
  nvJitLinkHandle handle = nullptr;
  MUST(nvJitLinkCreate(&handle, lto ? 2 : 1, options));
  for (const std::string& part : parts) {
    MUST(nvJitLinkAddData(handle, lto ? NVJITLINK_INPUT_LTOIR : NVJITLINK_INPUT_PTX, part.data(),
                          part.size(), "part"));
  }
  std::vector<char> cubin;
  std::size_t bytes = 0;
  if (nvJitLinkComplete(handle) == NVJITLINK_SUCCESS) {
    MUST(nvJitLinkGetLinkedCubinSize(handle, &bytes));
    cubin.resize(bytes);
    MUST(nvJitLinkGetLinkedCubin(handle, cubin.data()));
  } else {
    MUST(nvJitLinkGetErrorLogSize(handle, &bytes));
    log->resize(bytes);
    MUST(nvJitLinkGetErrorLog(handle, log->data()));
  }
  MUST(nvJitLinkDestroy(&handle));
  return cubin;
}

void run(const char* what, const std::vector<char>& cubin) {
  constexpr int kCount = 1000;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  MUST(cuModuleLoadData(&module, cubin.data()));
  MUST(cuModuleGetFunction(&function, module, "weigh_all"));
  const std::vector<float> in = some_values(kCount, 9);
  const DeviceArray<float> device_in(in), out(kCount);
  float *out_pointer = out.get(), *in_pointer = device_in.get();
  int count = kCount;
  void* arguments[] = {&out_pointer, &in_pointer, &count};
  MUST(
      cuLaunchKernel(function, (kCount + 63) / 64, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr));
  std::vector<double> right(kCount);
  for (int i = 0; i < kCount; ++i) right[i] = static_cast<double>(in[i]) * i + 0.5;
  expect_close(what, out.read(), right, 1e-6);
  MUST(cuModuleUnload(module));
}

}  // namespace

int main() {
  MUST(cudaFree(nullptr));
  std::string log;
  for (const bool lto : {false, true}) {
    const std::vector<char> cubin = link({compile(kCaller, lto), compile(kCallee, lto)}, lto, &log);
    if (cubin.empty()) {
      std::printf("FAILED: %s\n", log.c_str());
      return 1;
    }
    run(lto ? "LTO-IR" : "PTX", cubin);
  }
  if (!link({compile(kCaller, false)}, false, &log).empty()) {
    std::printf("FAILED: a link without a function that it calls\n");
    return 1;
  }
  std::printf("the missing function is %s\n",
              log.find("weigh") != log.npos ? "named" : "NOT NAMED");
  std::printf("PASSED\n");
  return 0;
}
