// Checks of the programs of this folder: checked calls, device arrays, comparison, the last line.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/support/cuda.h"

// Device memory with values. It is freed with the process, because these programs are short.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    MUST(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)));
    MUST(cudaMemset(data_, 0, count * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    MUST(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  T* get() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    MUST(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

// The same numbers in each run, between -1 and 1.
inline std::vector<float> some_values(std::size_t count, unsigned seed) {
  std::vector<float> values(count);
  unsigned state = seed * 2654435761u + 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int>(state >> 8) - (1 << 23)) / (1 << 23);
  }
  return values;
}

// Ends the program unless all are within `tolerance` of `right`, relative to its largest value.
template <typename Got, typename Right>
void expect_close(const char* what, const std::vector<Got>& got, const std::vector<Right>& right,
                  double tolerance) {
  double largest = 1e-30, worst = 0;
  for (const Right& each : right)
    largest = std::fmax(largest, std::fabs(static_cast<double>(each)));
  for (std::size_t i = 0; i < right.size(); ++i) {
    const double error =
        std::fabs(static_cast<double>(got[i]) - static_cast<double>(right[i])) / largest;
    if (!(error <= tolerance)) {  // Also catches a NaN.
      std::printf("FAILED: %s: value %zu is %.9g, not %.9g\n", what, i, static_cast<double>(got[i]),
                  static_cast<double>(right[i]));
      std::exit(1);
    }
    worst = std::fmax(worst, error);
  }
  if (got.size() < right.size() || right.empty()) {
    std::printf("FAILED: %s: %zu values\n", what, got.size());
    std::exit(1);
  }
  std::printf("%s: %zu values right\n", what, right.size());
}
