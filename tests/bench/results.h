// Results: samples in rows, and one JSON object of them on standard output. All measuring programs
// share them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpurun::bench {

using Clock = std::chrono::steady_clock;

inline double nanoseconds(Clock::duration took) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
}

// Returns the cost of one reading of the clock, which every sample includes. It is the least of
// several readings, because a busy machine only adds to it.
double clock_nanoseconds();

// One line of the result: samples in `unit`. Smaller is better for "ns", larger is better for
// rates.
struct Row {
  std::string name, unit;
  std::vector<double> samples;
};

// A row with calls that are repeated for a while, so that a profiler can watch them.
struct Repetition {
  std::string row;
  double seconds = 0;
};

class Results {
 public:
  // `quick`: a hundredth of the counts, which only shows that there are numbers. `repeated`: each()
  // and rate() repeat only the calls of this row. They make each other call once, because a row
  // depends on the state that earlier ones leave. Prints the line "ready" before the repeated calls
  // and "over" after them. The first million of them are timed.
  explicit Results(bool quick, std::optional<Repetition> repeated = std::nullopt)
      : quick_(quick), repeated_(std::move(repeated)) {}
  int count(int full) const { return quick_ ? std::max(3, full / 100) : full; }

  // Times each of `count(full)` calls of `call` by itself, in nanoseconds, after a tenth as many
  // unmeasured calls. `settle` runs unmeasured after every `every` calls, and keeps queues from
  // filling.
  template <typename Call, typename Settle>
  void each(const std::string& name, int full, Call call, int every, Settle settle) {
    const double clock = clock_nanoseconds();
    const auto sample = [&] { return std::max(0.0, timed(call) - clock); };
    if (repeated_) return repeat({name, "ns", {}}, call, sample, every, settle);
    const int counted = count(full);
    Row row{name, "ns", {}};
    row.samples.reserve(static_cast<std::size_t>(counted));
    for (int i = -counted / 10; i < counted; ++i) {
      const double took = sample();
      if (i >= 0) row.samples.push_back(took);
      if ((i + counted) % every == every - 1) settle();
    }
    settle();
    add(std::move(row));
  }
  template <typename Call>
  void each(const std::string& name, int full, Call call) {
    each(name, full, call, full + full, [] {});
  }
  // Adds the rate of each of `count(full)` calls of `call`, in GB/s, after one unmeasured call.
  // Each call moves `bytes`.
  template <typename Call>
  void rate(const std::string& name, std::size_t bytes, int full, Call call) {
    const auto sample = [&] { return static_cast<double>(bytes) / timed(call); };
    if (repeated_) return repeat({name, "GB/s", {}}, call, sample, 1, [] {});
    Row row{name, "GB/s", {}};
    for (int i = -1; i < count(full); ++i) {
      const double found = sample();
      if (i >= 0) row.samples.push_back(found);
    }
    add(std::move(row));
  }
  void one(const std::string& name, const std::string& unit, double value) {
    add({name, unit, {value}});
  }

  void add(Row row) {
    if (!repeated_ || repeated_->row == row.name) rows_.push_back(std::move(row));
  }
  // Returns false when a row was to be repeated, and no call of each() or rate() has its name.
  bool complete() const { return !repeated_ || !rows_.empty(); }

  // Prints one JSON object: {"row": {"unit": ..., "p50": ..., "p99": ..., "samples": N}, ...}.
  void print() const;

 private:
  template <typename Call>
  static double timed(Call& call) {
    const Clock::time_point start = Clock::now();
    call();
    return nanoseconds(Clock::now() - start);
  }
  // `sample` also makes the call.
  template <typename Call, typename Sample, typename Settle>
  void repeat(Row row, Call call, Sample sample, int every, Settle settle) {
    if (row.name != repeated_->row) {
      call();
      return settle();
    }
    row.samples.reserve(kTimedMax);
    say("ready");
    const Clock::time_point start = Clock::now();
    do {
      for (int i = 0; i < every; ++i) {
        if (row.samples.size() < kTimedMax)
          row.samples.push_back(sample());
        else
          call();
      }
      settle();
    } while (nanoseconds(Clock::now() - start) < repeated_->seconds * 1e9);
    say("over");
    add(std::move(row));
  }
  static void say(const char* line);

  static constexpr std::size_t kTimedMax = 1'000'000;
  const bool quick_;
  const std::optional<Repetition> repeated_;
  std::vector<Row> rows_;
};

}  // namespace gpurun::bench
