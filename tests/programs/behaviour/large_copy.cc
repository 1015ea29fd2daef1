// Driver API: a large copy to the device on one stream does not delay another stream. During the
// copy, 1,000 launches and their end take hardly longer than alone. For slow links. Its words: the
// image, the copy's bytes.
#include <chrono>
#include <random>

#include "driver_test.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double launch_many(const Device& device, CUstream stream, CUdeviceptr to) {
  const Clock::time_point begin = Clock::now();
  for (unsigned i = 0; i < 1'000; ++i) device.launch_fill(stream, to, 1, i);
  MUST(cuStreamSynchronize(stream));
  return seconds_since(begin);
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 3);
  const Device device(argv[1]);
  const size_t bytes = std::strtoull(argv[2], nullptr, 10);
  const CUstream one = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUstream two = Device::stream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr large = Device::memory(bytes), small = Device::memory(4);
  unsigned* const source = Device::pinned(bytes);
  std::mt19937 random(5);  // Bytes that do not compress.
  for (size_t i = 0; i < bytes / 4; ++i) source[i] = random();
  launch_many(device, two, small);
  const double alone = launch_many(device, two, small);
  const Clock::time_point begin = Clock::now();
  MUST(cuMemcpyHtoDAsync(large, source, bytes, one));
  const double beside = launch_many(device, two, small);
  const bool under_way = cuStreamQuery(one) == CUDA_ERROR_NOT_READY;
  MUST(cuStreamSynchronize(one));
  const double copy = seconds_since(begin);
  EXPECT(Device::read(large + bytes - 4) == source[bytes / 4 - 1]);
  EXPECT(Device::read(small) == 999);
  std::printf("1,000 launches: %.3f s alone, %.3f s beside a copy of %.3f s\n", alone, beside,
              copy);
  EXPECT(under_way);
  // A busy machine may add half a second to any thousand calls.
  EXPECT(beside < 3 * alone + 0.5);
  std::printf("PASSED\n");
  return 0;
}
