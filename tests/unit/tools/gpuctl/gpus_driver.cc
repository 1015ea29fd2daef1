// GPUs driver: a CUDA driver that knows where its GPUs are on the bus, and nothing else of them.
// For nvml_topology_test.cc.
#include <cstdio>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

// In the order of CUDA, which need not be that of the addresses. Drivers write capital letters.
constexpr const char* kPlaces[] = {"0000:AF:00.0", "0000:3E:00.0", "0000:5E:00.0",
                                   "0000:3D:00.0", "0000:42:00.0", "0000:99:00.0"};
constexpr int kCount = sizeof kPlaces / sizeof *kPlaces;

}  // namespace

EXPORTED int cuInit(unsigned) { return 0; }
EXPORTED int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
EXPORTED int cuDeviceGetCount(int* count) {
  *count = kCount;
  return 0;
}
EXPORTED int cuDeviceGetPCIBusId(char* text, int bytes, int device) {
  if (device < 0 || device >= kCount) return 101;  // CUDA_ERROR_INVALID_DEVICE
  std::snprintf(text, static_cast<unsigned>(bytes), "%s", kPlaces[device]);
  return 0;
}
