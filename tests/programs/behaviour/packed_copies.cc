// Driver API: packed copies of bytes that can be sent in fewer: zeros, small numbers, random
// numbers, and all of these in turn, with a single byte in some pages that look empty. Each comes
// back unchanged, over memory that held something else. Its words: the image, the kind, and the
// MiB.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "driver_test.h"

namespace {

constexpr size_t kPage = 8192, kPart = 512 << 10, kOdd = 1235;

void random_numbers(unsigned char* to, size_t bytes, std::mt19937_64& random) {
  for (size_t i = 0; i < bytes; i += 8) {
    const auto number = random();
    std::memcpy(to + i, &number, bytes - i < 8 ? bytes - i : 8);
  }
}

void small_numbers(unsigned char* to, size_t bytes, std::mt19937_64& random) {
  for (size_t i = 0; i < bytes; ++i) to[i] = i % 4 == 0 ? random() & 15 : 0;
}

// A part of zeros. Each page is empty, or has one byte at its end.
void nearly_zeros(unsigned char* to, size_t bytes, std::mt19937_64& random) {
  std::memset(to, 0, bytes);
  for (size_t page = 0; page + kPage <= bytes; page += kPage) {
    if (random() % 4 == 0) to[page + kPage - 1] = 1;
  }
}

void pages_in_turns(unsigned char* to, size_t bytes, std::mt19937_64& random) {
  std::memset(to, 0, bytes);
  for (size_t page = 0; page + kPage <= bytes; page += kPage) {
    if (random() % 16 == 0) random_numbers(to + page, kPage, random);
  }
}

void fill(unsigned char* to, size_t bytes, const std::string& what, std::mt19937_64& random) {
  for (size_t at = 0, part = 0; at < bytes; at += kPart, ++part) {
    const size_t size = bytes - at < kPart ? bytes - at : kPart;
    const size_t kind = what == "mixed" ? part % 5 : 5;
    if (what == "random" || kind == 0) random_numbers(to + at, size, random);
    if (what == "numbers" || kind == 1) small_numbers(to + at, size, random);
    if (what == "zeros" || kind == 2) std::memset(to + at, 0, size);
    if (kind == 3) nearly_zeros(to + at, size, random);
    if (kind == 4) pages_in_turns(to + at, size, random);
  }
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 4);
  const Device device(argv[1]);
  const std::string what = argv[2];
  size_t bytes = std::strtoull(argv[3], nullptr, 10) << 20;
  bytes += what == "mixed" ? kOdd : bytes == 0 ? kPage : 0;
  std::mt19937_64 random(7);
  const CUdeviceptr memory = Device::memory(bytes);
  const CUstream stream = Device::stream(CU_STREAM_NON_BLOCKING);
  auto* const pinned = reinterpret_cast<unsigned char*>(Device::pinned(bytes));
  std::vector<unsigned char> pageable(bytes);
  // Pinned in and pageable out, then the other way round.
  fill(pinned, bytes, what, random);
  MUST(cuMemcpyHtoDAsync(memory, pinned, bytes, stream));
  MUST(cuStreamSynchronize(stream));
  std::memset(pageable.data(), 0xab, bytes);
  MUST(cuMemcpyDtoH(pageable.data(), memory, bytes));
  EXPECT(std::memcmp(pageable.data(), pinned, bytes) == 0);
  if (what == "mixed") {
    fill(pageable.data(), bytes, what, random);
    MUST(cuMemcpyHtoD(memory, pageable.data(), bytes));
    std::memset(pinned, 0xab, bytes);
    MUST(cuMemcpyDtoHAsync(pinned, memory, bytes, stream));
    MUST(cuStreamSynchronize(stream));
    EXPECT(std::memcmp(pageable.data(), pinned, bytes) == 0);
  }
  std::printf("PASSED\n");
  return 0;
}
