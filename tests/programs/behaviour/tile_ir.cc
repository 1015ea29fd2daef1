// Tile IR loaded: images with a size that only their sections give, as a library and as a module. A
// vector addition, a product of matrices and loops, and refusals with a reason.
#include <cuda.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/cuda.h"
#include "tests/support/images/tile_images.h"

namespace {

using namespace gpurun::test;

CUdeviceptr device(const void* from, std::size_t bytes) {
  CUdeviceptr address = 0;
  MUST(cuMemAlloc(&address, bytes));
  MUST(cuMemcpyHtoD(address, from, bytes));
  return address;
}

void add(CUfunction kernel) {
  constexpr int kCount = 300;
  std::vector<float> a(kCount), sum(kCount);
  for (int i = 0; i < kCount; ++i) a[i] = 0.25f * static_cast<float>(i);
  CUdeviceptr pa = device(a.data(), kCount * sizeof(float));
  CUdeviceptr out = device(sum.data(), kCount * sizeof(float));
  int count = kCount;
  void* arguments[] = {&pa, &pa, &out, &count};
  MUST(cuLaunchKernel(kernel, 3, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  MUST(cuMemcpyDtoH(sum.data(), out, kCount * sizeof(float)));
  for (int i = 0; i < kCount; ++i) EXPECT(sum[i] == 2 * a[i]);
}

void multiply(CUfunction kernel) {
  constexpr int kM = 20, kN = 40, kK = 12;
  const std::vector<unsigned short> ones(kM * kK, 0x3c00), twos(kK * kN, 0x4000);
  std::vector<float> product(kM * kN);
  CUdeviceptr a = device(ones.data(), ones.size() * 2), b = device(twos.data(), twos.size() * 2);
  CUdeviceptr out = device(product.data(), product.size() * sizeof(float));
  int m = kM, n = kN, k = kK;
  void* arguments[] = {&a, &b, &out, &m, &n, &k};
  MUST(cuLaunchKernel(kernel, 2, 2, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  MUST(cuMemcpyDtoH(product.data(), out, product.size() * sizeof(float)));
  for (const float value : product) EXPECT(value == 2 * kK);
}

void count_steps(CUfunction kernel) {
  int steps[7] = {};
  CUdeviceptr out = device(steps, sizeof steps);
  void* arguments[] = {&out};
  MUST(cuLaunchKernel(kernel, 7, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  MUST(cuMemcpyDtoH(steps, out, sizeof steps));
  const int right[] = {0, 1, 7, 2, 5, 8, 16};
  EXPECT(std::memcmp(steps, right, sizeof right) == 0);
}

CUresult load(const std::string& image) {
  CUlibrary library = nullptr;
  return cuLibraryLoadData(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
}

// print_tko is not translated.
std::string printing_image() {
  TileAssembler code;
  TileBody body(0);
  body.put({0x55, 1, code.token(), 0});
  code.kernel("prints", {}, body);
  return code.image();
}

}  // namespace

int main() {
  MUST(cuInit(0));
  CUcontext context;
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));

  // Other bytes follow each image.
  const std::string sum_image = vector_add_image() + std::string(1000, '\x7f');
  CUlibrary library;
  MUST(cuLibraryLoadData(&library, sum_image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel;
  MUST(cuLibraryGetKernel(&kernel, library, "add"));
  add(reinterpret_cast<CUfunction>(kernel));
  EXPECT(cuLibraryGetKernel(&kernel, library, "ad") == CUDA_ERROR_NOT_FOUND);

  CUfunction function;
  CUmodule products, loops;
  const std::string product = product_image() + "x", control = control_image() + "y";
  MUST(cuModuleLoadData(&products, product.data()));
  MUST(cuModuleGetFunction(&function, products, "product"));
  multiply(function);
  MUST(cuModuleLoadData(&loops, control.data()));
  MUST(cuModuleGetFunction(&function, loops, "steps"));
  count_steps(function);

  EXPECT(load(printing_image()) == CUDA_ERROR_INVALID_PTX);
  std::string unknown = vector_add_image();
  unknown[12] = static_cast<char>(0x89);  // Section 9.
  EXPECT(load(unknown) == CUDA_ERROR_INVALID_IMAGE);

  MUST(cuLibraryUnload(library));
  MUST(cuModuleUnload(products));
  MUST(cuModuleUnload(loops));
  MUST(cuDevicePrimaryCtxRelease(0));
  std::printf("PASSED\n");
  return 0;
}
