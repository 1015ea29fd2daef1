// Heedless driver: a driver of two GPUs that ignores which ones it should show.
extern "C" int cuInit(unsigned) { return 0; }
extern "C" int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
extern "C" int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
