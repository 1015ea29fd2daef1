// Copies: 64 KiB, 64 MiB, four of 16 MiB at once, and an image, pageable and pinned, both ways.
// First random bytes, which do not compress. Then zeros, which need not travel at all.
#include <cstring>
#include <random>

#include "tests/bench/client/bench.h"

namespace gpurun::bench {
namespace {

constexpr int kSmall = 1000;
constexpr int kLarge = 5;
constexpr int kAtOnce = 4;
constexpr std::size_t kKib64 = std::size_t{64} << 10;
constexpr std::size_t kMib16 = std::size_t{16} << 20;

// A size that a network of 1 Gbit/s or less transfers in a tolerable time.
constexpr std::size_t kSlowBytes = std::size_t{16} << 20;

// Numbers of two digits in words of 32 bits, which a codec makes several times smaller.
void fill_compressibly(void* memory, std::size_t bytes) {
  std::mt19937 random(1);
  auto* words = static_cast<std::uint32_t*>(memory);
  for (std::size_t i = 0; i < bytes / sizeof *words; ++i)
    words[i] = static_cast<std::uint32_t>(random() % 100);
}

void measure_small(const Stage& s, void* pageable, Results* results) {
  const auto wait = [&] { MUST(CU(cuStreamSynchronize)(s.stream)); };
  results->rate("copy in 64 KiB, pinned, one by one", kKib64, kSmall, [&] {
    MUST(CU(cuMemcpyHtoDAsync_v2)(s.memory, s.pinned, kKib64, s.stream));
    wait();
  });
  results->rate("copy out 64 KiB, pinned, one by one", kKib64, kSmall, [&] {
    MUST(CU(cuMemcpyDtoHAsync_v2)(s.pinned, s.memory, kKib64, s.stream));
    wait();
  });
  results->rate("copy out 64 KiB, pageable, one by one", kKib64, kSmall,
                [&] { MUST(CU(cuMemcpyDtoH_v2)(pageable, s.memory, kKib64)); });
  // Copies one after another, as programs make them, with no wait for the network in between.
  constexpr std::size_t kMany = 256;
  results->rate("copy in 64 KiB, pageable, one after another", kMany * kKib64, kSmall / 50, [&] {
    for (std::size_t i = 0; i < kMany; ++i) {
      auto* from = static_cast<char*>(pageable) + i * kKib64;
      MUST(CU(cuMemcpyHtoD_v2)(s.memory + i * kKib64, from, kKib64));
    }
    MUST(CU(cuCtxSynchronize)());
  });
  results->rate("copy in 64 KiB, pinned, one after another", kMany * kKib64, kSmall / 50, [&] {
    for (std::size_t i = 0; i < kMany; ++i) {
      auto* from = static_cast<char*>(s.pinned) + i * kKib64;
      MUST(CU(cuMemcpyHtoDAsync_v2)(s.memory + i * kKib64, from, kKib64, s.stream));
    }
    wait();
  });
  results->rate("copy out 64 KiB, pinned, one after another", kMany * kKib64, kSmall / 50, [&] {
    for (std::size_t i = 0; i < kMany; ++i) {
      auto* into = static_cast<char*>(s.pinned) + i * kKib64;
      MUST(CU(cuMemcpyDtoHAsync_v2)(into, s.memory + i * kKib64, kKib64, s.stream));
    }
    wait();
  });
}

void measure_large(const Stage& s, void* pageable, const char* what, Results* results) {
  const auto wait = [&] { MUST(CU(cuStreamSynchronize)(s.stream)); };
  const auto named = [&](const char* direction, const char* memory) {
    return std::string("copy ") + direction + " 64 MiB" + what + ", " + memory;
  };
  results->rate(named("in", "pageable"), Stage::kBytes, kLarge, [&] {
    MUST(CU(cuMemcpyHtoD_v2)(s.memory, pageable, Stage::kBytes));
    MUST(CU(cuCtxSynchronize)());
  });
  results->rate(named("in", "pinned"), Stage::kBytes, kLarge, [&] {
    MUST(CU(cuMemcpyHtoDAsync_v2)(s.memory, s.pinned, Stage::kBytes, s.stream));
    wait();
  });
  results->rate(named("out", "pageable"), Stage::kBytes, kLarge,
                [&] { MUST(CU(cuMemcpyDtoH_v2)(pageable, s.memory, Stage::kBytes)); });
  results->rate(named("out", "pinned"), Stage::kBytes, kLarge, [&] {
    MUST(CU(cuMemcpyDtoHAsync_v2)(s.pinned, s.memory, Stage::kBytes, s.stream));
    wait();
  });
}

void measure_several_at_once(const Stage& s, Results* results) {
  const auto each_part = [&](auto copy) {
    for (int i = 0; i < kAtOnce; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * kMib16;
      copy(s.memory + at, static_cast<char*>(s.pinned) + at);
    }
    MUST(CU(cuStreamSynchronize)(s.stream));
  };
  results->rate("copy in 4 x 16 MiB at once, pinned", kAtOnce * kMib16, kLarge, [&] {
    each_part([&](CUdeviceptr device, void* host) {
      MUST(CU(cuMemcpyHtoDAsync_v2)(device, host, kMib16, s.stream));
    });
  });
  results->rate("copy out 4 x 16 MiB at once, pinned", kAtOnce * kMib16, kLarge, [&] {
    each_part([&](CUdeviceptr device, void* host) {
      MUST(CU(cuMemcpyDtoHAsync_v2)(host, device, kMib16, s.stream));
    });
  });
}

// An image with gaps between its lines on the device.
void measure_boxes(const Stage& s, Results* results) {
  constexpr std::size_t kLines = 1000, kWidth = 1000, kPitch = 1024;
  CUDA_MEMCPY2D device{};
  device.WidthInBytes = kWidth;
  device.Height = kLines;
  CUDA_MEMCPY2D in = device, out = device;
  in.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_HOST;
  in.dstMemoryType = out.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  in.srcHost = out.dstHost = s.pinned;
  in.srcPitch = out.dstPitch = kWidth;
  in.dstDevice = out.srcDevice = s.memory;
  in.dstPitch = out.srcPitch = kPitch;
  const auto each = [&](const char* row, const CUDA_MEMCPY2D& box) {
    results->rate(row, kLines * kWidth, kSmall / 20, [&] {
      MUST(CU(cuMemcpy2DAsync_v2)(&box, s.stream));
      MUST(CU(cuStreamSynchronize)(s.stream));
    });
  };
  each("copy in 1,000 lines of 1,000 bytes, pinned", in);
  each("copy out 1,000 lines of 1,000 bytes, pinned", out);
}

}  // namespace

void fill_randomly(void* memory, std::size_t bytes) {
  std::mt19937_64 random(1);
  auto* words = static_cast<std::uint64_t*>(memory);
  for (std::size_t i = 0; i < bytes / sizeof *words; ++i) words[i] = random();
}

void measure_copies(const Stage& s, Results* results) {
  std::vector<char> pageable(Stage::kBytes);
  fill_randomly(pageable.data(), Stage::kBytes);
  fill_randomly(s.pinned, Stage::kBytes);
  measure_small(s, pageable.data(), results);
  measure_large(s, pageable.data(), "", results);
  measure_several_at_once(s, results);
  measure_boxes(s, results);
  std::memset(pageable.data(), 0, Stage::kBytes);
  std::memset(s.pinned, 0, Stage::kBytes);
  measure_large(s, pageable.data(), " of zeros", results);
}

// Copies over a link that is slower than a codec.
void measure_slow_link(const Stage& s, Results* results) {
  const auto both_ways = [&](const std::string& what) {
    results->rate("copy in 16 MiB of " + what + ", slow link", kSlowBytes, 3, [&] {
      MUST(CU(cuMemcpyHtoDAsync_v2)(s.memory, s.pinned, kSlowBytes, s.stream));
      MUST(CU(cuStreamSynchronize)(s.stream));
    });
    results->rate("copy out 16 MiB of " + what + ", slow link", kSlowBytes, 3, [&] {
      MUST(CU(cuMemcpyDtoHAsync_v2)(s.pinned, s.memory, kSlowBytes, s.stream));
      MUST(CU(cuStreamSynchronize)(s.stream));
    });
  };
  fill_randomly(s.pinned, kSlowBytes);
  both_ways("random bytes");
  fill_compressibly(s.pinned, kSlowBytes);
  both_ways("small numbers");
  std::memset(s.pinned, 0, kSlowBytes);
  both_ways("zeros");
}

}  // namespace gpurun::bench
