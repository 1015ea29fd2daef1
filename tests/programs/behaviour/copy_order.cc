// Driver API: of two copies out of one stream to the same memory the later one wins, for all sizes,
// threads and connections. Also two streams, of which one waits for the other. Its words: the
// number of rounds, and the larger and the smaller size in KiB.
#include <algorithm>
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
    // Compares all bytes, because a part may have been late.
    if (left % 16 == 0) {
      for (size_t i = 0; i < bytes; ++i) EXPECT(to[i] == (i < small ? 2 : 1));
    }
  }
  // Two streams, in both orders of their handles, with few bytes and with many.
  const CUstream other = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUevent event = Device::event(CU_EVENT_DISABLE_TIMING);
  for (int left = std::min(std::atoi(argv[1]), 400); left > 0; --left) {
    const size_t size = left % 4 < 2 ? 4 : small;
    const bool swapped = left % 2 != 0;
    const CUstream first = swapped ? other : stream, second = swapped ? stream : other;
    to[0] = to[size - 1] = 0;
    MUST(cuMemcpyDtoHAsync(to, ones, size, first));
    MUST(cuEventRecord(event, first));
    MUST(cuStreamWaitEvent(second, event, 0));
    MUST(cuMemcpyDtoHAsync(to, twos, 4, second));
    MUST(cuStreamSynchronize(second));
    EXPECT(to[0] == 2 && to[size - 1] == (size == 4 ? 2 : 1));
    MUST(cuStreamSynchronize(first));
    EXPECT(to[0] == 2);
  }
  std::printf("PASSED\n");
  return 0;
}
