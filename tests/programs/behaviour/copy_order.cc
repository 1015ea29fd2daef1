// Driver API: of two copies out of one stream to the same memory the later one is there at last,
// whatever their sizes and whichever thread sends their bytes. Its word: how often.
#include <cstring>

#include "driver_test.h"

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  end_after(200);
  constexpr size_t kBytes = 200 << 10;  // The sender's own, and what whoever has it sends.
  constexpr size_t kSmall = 32 << 10;
  CUdevice device;
  CUcontext context;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuCtxCreate(&context, nullptr, 0, device));
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr ones = Device::memory(kBytes), twos = Device::memory(kSmall);
  auto* const to = reinterpret_cast<unsigned char*>(Device::pinned(kBytes));
  MUST(cuMemsetD8(ones, 1, kBytes));
  MUST(cuMemsetD8(twos, 2, kSmall));
  MUST(cuCtxSynchronize());
  for (int left = std::atoi(argv[1]); left > 0; --left) {
    std::memset(to, 0, kBytes);
    MUST(cuMemcpyDtoHAsync(to, ones, kBytes, stream));
    MUST(cuMemcpyDtoHAsync(to, twos, kSmall, stream));
    MUST(cuStreamSynchronize(stream));
    EXPECT(to[0] == 2 && to[kSmall - 1] == 2 && to[kSmall] == 1 && to[kBytes - 1] == 1);
  }
  std::printf("PASSED\n");
  return 0;
}
