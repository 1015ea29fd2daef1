// Stub driver: a driver library with three functions only. The build defines what they do: INIT is
// the result of cuInit, VERSION is the driver's, DEVICES is the number of its GPUs, and with
// CRASHES cuInit does not return.
#ifndef INIT
#define INIT 0
#endif
#ifndef VERSION
#define VERSION 13000
#endif
#ifndef DEVICES
#define DEVICES 1
#endif

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int cuInit(unsigned) {
#ifdef CRASHES
  __builtin_trap();
#endif
  return INIT;
}
EXPORTED int cuDriverGetVersion(int* version) {
  *version = VERSION;
  return 0;
}
EXPORTED int cuDeviceGetCount(int* count) {
  *count = DEVICES;
  return 0;
}
