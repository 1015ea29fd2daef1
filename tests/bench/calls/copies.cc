// Copies of 64 KiB and 64 MiB, pageable and pinned, both ways. Random bytes: nothing may gain from
// compressing them.
#include <random>

#include "tests/bench/calls/bench.h"

namespace gpurun::bench {
namespace {

constexpr int kSmall = 1000;
constexpr int kLarge = 5;

template <typename Copy>
void rate(Results* results, const char* name, std::size_t bytes, int count, Copy copy) {
  Row row{name, "GB/s", {}};
  for (int i = -1; i < count; ++i) {
    const Clock::time_point start = Clock::now();
    copy();
    const double took = nanoseconds(Clock::now() - start);
    if (i >= 0) row.samples.push_back(static_cast<double>(bytes) / took);
  }
  results->add(std::move(row));
}

}  // namespace

void measure_copies(const Stage& s, Results* results) {
  std::vector<std::uint64_t> pageable(Stage::kBytes / sizeof(std::uint64_t));
  std::mt19937_64 random(1);
  for (std::uint64_t& word : pageable) word = random();
  auto* pinned = static_cast<std::uint64_t*>(s.pinned);
  std::copy(pageable.begin(), pageable.end(), pinned);
  const auto wait = [&] { MUST(CU(cuStreamSynchronize)(s.stream)); };

  constexpr std::size_t kKib64 = 64 << 10;
  results->each("copy in 64 KiB, pinned", kSmall, [&] {
    MUST(CU(cuMemcpyHtoDAsync_v2)(s.memory, pinned, kKib64, s.stream));
    wait();
  });
  results->each("copy out 64 KiB, pinned", kSmall, [&] {
    MUST(CU(cuMemcpyDtoHAsync_v2)(pinned, s.memory, kKib64, s.stream));
    wait();
  });
  rate(results, "copy in 64 MiB, pageable", Stage::kBytes, kLarge, [&] {
    MUST(CU(cuMemcpyHtoD_v2)(s.memory, pageable.data(), Stage::kBytes));
    MUST(CU(cuCtxSynchronize)());
  });
  rate(results, "copy in 64 MiB, pinned", Stage::kBytes, kLarge, [&] {
    MUST(CU(cuMemcpyHtoDAsync_v2)(s.memory, pinned, Stage::kBytes, s.stream));
    wait();
  });
  rate(results, "copy out 64 MiB, pageable", Stage::kBytes, kLarge,
       [&] { MUST(CU(cuMemcpyDtoH_v2)(pageable.data(), s.memory, Stage::kBytes)); });
  rate(results, "copy out 64 MiB, pinned", Stage::kBytes, kLarge, [&] {
    MUST(CU(cuMemcpyDtoHAsync_v2)(pinned, s.memory, Stage::kBytes, s.stream));
    wait();
  });
}

}  // namespace gpurun::bench
