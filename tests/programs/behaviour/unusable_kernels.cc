// Driver API: kernels that the device cannot run. Their images load. Each such kernel returns its
// own error when it is queried, and a kernel beside it works.
#include <cuda.h>

#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/cuda.h"

using cuda_check::name_of;

// An instruction of other GPUs, in one of three kernels.
static const char kText[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry good() { ret; }
.visible .entry odd() { tcgen05.wait::ld.sync.aligned; ret; }
.visible .entry plain() { ret; }
)";

static void answer(const char* image, const char* name, CUresult code, CUresult right) {
  std::printf("%s: %s: %s\n", image, name, name_of(code));
  EXPECT(code == right);
}

// `good` (if not nullptr) runs, and `bad` and `missing` return these codes.
static void use_module(const char* image, const void* bytes, const char* good, const char* bad,
                       CUresult bad_code, CUresult missing_code, unsigned kernels) {
  CUmodule module;
  MUST(cuModuleLoadData(&module, bytes));
  CUfunction function;
  answer(image, bad, cuModuleGetFunction(&function, module, bad), bad_code);
  answer(image, "no_such", cuModuleGetFunction(&function, module, "no_such"), missing_code);
  unsigned count = 99;
  MUST(cuModuleGetFunctionCount(&count, module));
  EXPECT(count == kernels);
  if (good != nullptr) {
    MUST(cuModuleGetFunction(&function, module, good));
    MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    MUST(cuCtxSynchronize());
  }
  MUST(cuModuleUnload(module));
}

static void use_library(const char* image, const void* bytes, const char* good, const char* bad,
                        CUresult bad_code, CUresult missing_code, unsigned kernels) {
  CUlibrary library;
  MUST(cuLibraryLoadData(&library, bytes, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel;
  answer(image, bad, cuLibraryGetKernel(&kernel, library, bad), bad_code);
  answer(image, "no_such", cuLibraryGetKernel(&kernel, library, "no_such"), missing_code);
  unsigned count = 99;
  MUST(cuLibraryGetKernelCount(&count, library));
  EXPECT(count == kernels);
  if (good != nullptr) {
    MUST(cuLibraryGetKernel(&kernel, library, good));
    MUST(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr,
                        nullptr));
    MUST(cuCtxSynchronize());
  }
  MUST(cuLibraryUnload(library));
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);  // A fat binary of machine code for another device.
  std::ifstream file(argv[1], std::ios::binary);
  const std::string fat{std::istreambuf_iterator<char>(file), {}};
  EXPECT(!fat.empty());
  // The smallest ELF image of machine code.
  unsigned char elf[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33};
  elf[52] = 64;  // e_ehsize
  MUST(cuInit(0));
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  CUcontext context;
  MUST(cuCtxCreate(&context, nullptr, 0, device));
  const CUresult none = CUDA_ERROR_NO_BINARY_FOR_GPU;
  // The second time the image is known.
  for (int round = 0; round < 2; ++round) {
    use_module("text", kText, "good", "odd", CUDA_ERROR_INVALID_PTX, CUDA_ERROR_NOT_FOUND, 3);
    use_library("text library", kText, "plain", "odd", CUDA_ERROR_INVALID_PTX, CUDA_ERROR_NOT_FOUND,
                3);
    // Without PTX the kernels of the image are unknown.
    use_module("machine code", fat.data(), nullptr, "fill", none, none, 0);
    use_library("machine code library", fat.data(), nullptr, "fill", none, none, 0);
    use_module("elf", elf, nullptr, "any", none, none, 0);
    use_library("elf library", elf, nullptr, "any", none, none, 0);
  }
  MUST(cuCtxDestroy(context));
  std::printf("PASSED\n");
  return 0;
}
