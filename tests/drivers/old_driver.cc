// Old driver: a driver for CUDA 12.2. It is no script of the null device, because a script cannot
// remove a symbol: the worker refuses an old driver only if cuKernelGetParamInfo is absent
// (server/driver/cuda_driver.cc).
#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int cuInit(unsigned) { return 0; }
EXPORTED int cuDriverGetVersion(int* version) {
  *version = 12020;
  return 0;
}
