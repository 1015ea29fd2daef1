// Driver API: of two copies out of one stream to the same memory the later one is there at last,
// whatever their sizes, whichever thread sends their bytes and over whichever connection. Its
// words: how often; and the larger one's size and the smaller one's, in KiB.
#include <cstring>

#include "driver_test.h"

int main(int argc, char** argv) {
  EXPECT(argc == 4);
  end_after(200);
  const size_t bytes = std::strtoull(argv[2], nullptr, 10) << 10;
  const size_t small = std::strtoull(argv[3], nullptr, 10) << 10;
  CUdevice device;
  CUcontext context;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuCtxCreate(&context, nullptr, 0, device));
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr ones = Device::memory(bytes), twos = Device::memory(small);
  auto* const to = reinterpret_cast<unsigned char*>(Device::pinned(bytes));
  MUST(cuMemsetD8(ones, 1, bytes));
  MUST(cuMemsetD8(twos, 2, small));
  MUST(cuCtxSynchronize());
  for (int left = std::atoi(argv[1]); left > 0; --left) {
    std::memset(to, 0, bytes);
    MUST(cuMemcpyDtoHAsync(to, ones, bytes, stream));
    MUST(cuMemcpyDtoHAsync(to, twos, small, stream));
    MUST(cuStreamSynchronize(stream));
    EXPECT(to[0] == 2 && to[small - 1] == 2 && to[small] == 1 && to[bytes - 1] == 1);
    // All of it where a part may have been late.
    if (left % 16 == 0) {
      for (size_t i = 0; i < bytes; ++i) EXPECT(to[i] == (i < small ? 2 : 1));
    }
  }
  std::printf("PASSED\n");
  return 0;
}
