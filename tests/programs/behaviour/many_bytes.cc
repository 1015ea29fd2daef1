// Driver API: many bytes, as many as a link needs to show its behaviour. To the device: each copy
// writes where the one before the last did. A page of every 512 KiB comes back at once and is
// checked, and all of the last two copies. From the device: each copy goes to the place of the one
// before, and all of each is checked. Its words: MiB in all, MiB of a copy, "pinned" or "pageable",
// "in" or "out". Prints the speed without the checks.
#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "driver_test.h"

namespace {

constexpr size_t kPage = 4096, kPart = 512 << 10;

void stamp(unsigned char* bytes, size_t size, size_t round) {
  for (size_t at = 0; at < size; at += kPage) {
    const size_t mark = round << 32 | at;
    std::memcpy(bytes + at + 8 * (round % 64), &mark, sizeof mark);
  }
}

// Checks one page of each part, the first at `offset`.
void look(CUdeviceptr there, const unsigned char* here, size_t size, size_t offset) {
  std::vector<unsigned char> pages(size / kPart * kPage);
  CUDA_MEMCPY2D box = {};
  box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  box.srcDevice = there + offset;
  box.srcPitch = kPart;
  box.dstMemoryType = CU_MEMORYTYPE_HOST;
  box.dstHost = pages.data();
  box.dstPitch = kPage;
  box.WidthInBytes = kPage;
  box.Height = size / kPart;
  MUST(cuMemcpy2D(&box));
  for (size_t part = 0; part < size / kPart; ++part) {
    EXPECT(std::memcmp(pages.data() + part * kPage, here + part * kPart + offset, kPage) == 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 5);
  CUdevice device;
  CUcontext context;
  MUST(cuInit(0));
  MUST(cuDeviceGet(&device, 0));
  MUST(cuCtxCreate(&context, nullptr, 0, device));
  const size_t all = std::strtoull(argv[1], nullptr, 10) << 20;
  const size_t size = std::strtoull(argv[2], nullptr, 10) << 20;
  EXPECT(size >= kPart);
  const bool is_pinned = argv[3] == std::string("pinned");
  std::vector<unsigned char> pageable[2];
  unsigned char* sources[2];
  CUdeviceptr memory[2];
  std::mt19937_64 random(7);
  for (int i = 0; i < 2; ++i) {
    if (!is_pinned) pageable[i].resize(size);
    sources[i] =
        is_pinned ? reinterpret_cast<unsigned char*>(Device::pinned(size)) : pageable[i].data();
    memory[i] = Device::memory(size);
    for (size_t at = 0; at < size; at += 8) {
      const auto number = random();
      std::memcpy(sources[i] + at, &number, 8);
    }
  }
  std::chrono::duration<double> taken{0};
  if (argv[4] == std::string("out")) {
    for (int i = 0; i < 2; ++i) MUST(cuMemcpyHtoD(memory[i], sources[i], size));
    std::vector<unsigned char> elsewhere(is_pinned ? 0 : size);
    auto* const to =
        is_pinned ? reinterpret_cast<unsigned char*>(Device::pinned(size)) : elsewhere.data();
    for (size_t round = 0; round < all / size; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      MUST(cuMemcpyDtoH(to, memory[round % 2], size));
      taken += std::chrono::steady_clock::now() - begin;
      EXPECT(std::memcmp(to, sources[round % 2], size) == 0);
    }
  }
  for (size_t round = 0; argv[4] == std::string("in") && round < all / size; ++round) {
    const size_t which = round % 2;
    stamp(sources[which], size, round);
    const auto begin = std::chrono::steady_clock::now();
    MUST(cuMemcpyHtoD(memory[which], sources[which], size));
    MUST(cuCtxSynchronize());
    taken += std::chrono::steady_clock::now() - begin;
    look(memory[which], sources[which], size, round % (kPart / kPage) * kPage);
  }
  for (int i = 0; i < 2; ++i) {
    std::vector<unsigned char> back(size);
    MUST(cuMemcpyDtoH(back.data(), memory[i], size));
    EXPECT(std::memcmp(back.data(), sources[i], size) == 0);
  }
  std::printf("%.1f MB/s\nPASSED\n", static_cast<double>(all / size * size) / 1e6 / taken.count());
  return 0;
}
