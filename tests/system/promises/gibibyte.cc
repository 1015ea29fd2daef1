// Gibibyte: one copy of 1 GiB each way, of bytes that do not compress. large_copies_test.py watches
// the memory of both sides.
//
// usage: gibibyte pageable|pinned
// Prints "ready" once all of its memory, including the device's, has been written. Waits for a
// line, copies, and checks the copied bytes.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "tests/support/cuda.h"
#include "tests/system/promises/primary_context.h"

namespace {

constexpr std::size_t kBytes = std::size_t{1} << 30;
constexpr std::size_t kWords = kBytes / sizeof(std::uint64_t);

// Each word is different and unrelated to its neighbours (splitmix64).
std::uint64_t word(std::size_t index) {
  std::uint64_t mixed = (index + 1) * 0x9E3779B97F4A7C15;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return mixed ^ (mixed >> 31);
}

}  // namespace

int main(int count, char** arguments) {
  EXPECT(count == 2);
  const bool pinned = std::string(arguments[1]) == "pinned";
  make_primary_context();

  std::vector<std::uint64_t> pageable(pinned ? 0 : kWords);
  void* memory = pageable.data();
  if (pinned) MUST(cuMemHostAlloc(&memory, kBytes, 0));
  std::uint64_t* words = static_cast<std::uint64_t*>(memory);
  for (std::size_t i = 0; i < kWords; ++i) words[i] = word(i);
  CUdeviceptr on_device = 0;
  MUST(cuMemAlloc_v2(&on_device, kBytes));
  MUST(cuMemsetD8_v2(on_device, 1, kBytes));
  MUST(cuCtxSynchronize());
  std::printf("ready\n");
  std::fflush(stdout);
  char line[16];
  EXPECT(std::fgets(line, sizeof line, stdin) != nullptr);

  MUST(cuMemcpyHtoD_v2(on_device, memory, kBytes));
  MUST(cuCtxSynchronize());  // Until then gpurun may read the pinned memory.
  std::printf("copied in\n");
  std::memset(memory, 0, kBytes);
  MUST(cuMemcpyDtoH_v2(memory, on_device, kBytes));
  for (std::size_t i = 0; i < kWords; ++i) EXPECT(words[i] == word(i));
  std::printf("PASSED\n");
  std::fflush(stdout);
  EXPECT(std::fgets(line, sizeof line, stdin) != nullptr);  // The test inspects the process.
  return 0;
}
