// Driver API: prints the device's free and total bytes before this program has used any.
#include "check.h"

int main() {
  MUST(cuInit(0));
  CUdevice device;
  MUST(cuDeviceGet(&device, 0));
  CUcontext context;
  MUST(cuDevicePrimaryCtxRetain(&context, device));
  MUST(cuCtxSetCurrent(context));
  std::size_t free_bytes = 0, total_bytes = 0;
  MUST(cuMemGetInfo(&free_bytes, &total_bytes));
  std::printf("%zu of %zu bytes free\n", free_bytes, total_bytes);
  return 0;
}
