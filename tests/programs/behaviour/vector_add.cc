// Driver API: a vector addition from a fat binary, with parameters of every form.
#include <cuda.h>

#include <vector>

#include "tests/support/cuda.h"

struct Mixed {
  char letter;
  double number;
  short words[5];
};

int main(int argc, char** argv) {
  EXPECT(argc == 2);  // The module's file.
  MUST(cuInit(0));
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  CUcontext context;
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  CUmodule module;
  MUST(cuModuleLoad(&module, argv[1]));
  CUfunction add;
  MUST(cuModuleGetFunction(&add, module, "add"));

  constexpr unsigned kCount = 100'003;
  std::vector<float> a(kCount), b(kCount), sum(kCount);
  for (unsigned i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(2 * i + 1);
  }
  const std::size_t bytes = kCount * sizeof(float);
  CUdeviceptr da, db, dsum;
  MUST(cuMemAlloc(&da, bytes));
  MUST(cuMemAlloc(&db, bytes));
  MUST(cuMemAlloc(&dsum, bytes));
  MUST(cuMemcpyHtoD(da, a.data(), bytes));
  MUST(cuMemcpyHtoD(db, b.data(), bytes));
  unsigned count = kCount;
  void* arguments[] = {&da, &db, &dsum, &count};
  MUST(cuLaunchKernel(add, (kCount + 255) / 256, 1, 1, 256, 1, 1, 0, nullptr, arguments, nullptr));
  MUST(cuMemcpyDtoH(sum.data(), dsum, bytes));
  for (unsigned i = 0; i < kCount; ++i) EXPECT(sum[i] == a[i] + b[i]);

  CUfunction parameters;
  MUST(cuModuleGetFunction(&parameters, module, "parameters"));
  char c = 'c';
  double d = 1234567.0;
  Mixed mixed{'m', 89.0, {1, 2, 3, 4, 5}};
  short s = 321;
  unsigned long long seen[6] = {};
  CUdeviceptr out;
  MUST(cuMemAlloc(&out, sizeof seen));
  void* mixed_arguments[] = {&c, &d, &mixed, &s, &out};
  MUST(cuLaunchKernel(parameters, 1, 1, 1, 1, 1, 1, 0, nullptr, mixed_arguments, nullptr));
  MUST(cuMemcpyDtoH(seen, out, sizeof seen));
  EXPECT(seen[0] == 'c' && seen[1] == 1234567 && seen[2] == 'm' && seen[3] == 89 && seen[4] == 5 &&
         seen[5] == 321);

  for (CUdeviceptr address : {da, db, dsum, out}) MUST(cuMemFree(address));
  MUST(cuModuleUnload(module));
  MUST(cuDevicePrimaryCtxRelease(device));
  std::printf("PASSED: %u sums\n", kCount);
  return 0;
}
