// Old driver: a driver for CUDA 12.2, which has no function that reports a kernel's parameters.
extern "C" int cuInit(unsigned) { return 0; }
extern "C" int cuDriverGetVersion(int* version) {
  *version = 12020;
  return 0;
}
extern "C" int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
