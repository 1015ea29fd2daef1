// Results: percentiles, and the clock's own cost.
#include "tests/bench/results.h"

#include <cstdio>

namespace gpurun::bench {
namespace {

double at_share(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

}  // namespace

double clock_nanoseconds() {
  constexpr int kReadings = 2000;
  static const double least = [] {
    double best = 1e9;
    for (int round = 0; round < 50; ++round) {
      const Clock::time_point start = Clock::now();
      Clock::time_point end = start;
      for (int i = 0; i < kReadings; ++i) end = Clock::now();
      best = std::min(best, nanoseconds(end - start) / kReadings);
    }
    return best;
  }();
  return least;
}

void Results::say(const char* line) {
  std::printf("%s\n", line);
  std::fflush(stdout);
}

void Results::print() const {
  std::printf("{");
  const char* separator = "\n";
  for (const Row& row : rows_) {
    std::vector<double> sorted = row.samples;
    std::sort(sorted.begin(), sorted.end());
    std::printf("%s  \"%s\": {\"unit\": \"%s\", \"p50\": %.12g, \"p99\": %.12g, \"samples\": %zu}",
                separator, row.name.c_str(), row.unit.c_str(), at_share(sorted, 0.5),
                at_share(sorted, 0.99), sorted.size());
    separator = ",\n";
  }
  std::printf("\n}\n");
}

}  // namespace gpurun::bench
