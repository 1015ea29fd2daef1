// Driver API: packed calls, which can be sent in fewer bytes because nothing waits for them. They
// are launches that resemble each other, small copies of random bytes, which do not, and stretches
// of both. All their results arrive in the end. Its words: the image, the kind ("launches",
// "copies", "both"), and the number of thousand calls.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "driver_test.h"

namespace {

constexpr std::size_t kWords = 1024;  // In each copy.
constexpr std::size_t kPlaces = 4096;
// For both: so many launches, about 2 MiB of records, then so many copies.
constexpr std::size_t kLaunches = 16'000, kCopies = 500;

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 4);
  end_after(60);
  const Device device(argv[1]);
  const std::string what = argv[2];
  const std::size_t calls = std::strtoull(argv[3], nullptr, 10) * 1000;
  std::mt19937 random(11);
  std::vector<unsigned> expected(kPlaces * kWords, 0), found(expected.size(), 1);
  const std::size_t bytes = expected.size() * sizeof(unsigned);
  const CUdeviceptr memory = Device::memory(bytes);
  MUST(cuMemsetD8(memory, 0, bytes));
  unsigned one = 1;
  for (std::size_t i = 0; i < calls; ++i) {
    const std::size_t at = i % kPlaces * kWords;
    CUdeviceptr to = memory + at * sizeof(unsigned);
    if (what == "launches" || (what == "both" && i % (kLaunches + kCopies) < kLaunches)) {
      unsigned value = random();
      void* arguments[] = {&to, &one, &value};
      MUST(cuLaunchKernel(device.fill, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
      expected[at] = value;
    } else {
      for (std::size_t word = 0; word < kWords; ++word) expected[at + word] = random();
      MUST(cuMemcpyHtoD(to, &expected[at], kWords * sizeof(unsigned)));
    }
  }
  MUST(cuMemcpyDtoH(found.data(), memory, bytes));
  EXPECT(std::memcmp(found.data(), expected.data(), bytes) == 0);
  std::printf("PASSED\n");
  return 0;
}
