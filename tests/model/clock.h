// Vector clocks: how much of each thread's progress this thread knows.
#pragma once

#include <array>
#include <cstdint>

namespace gpurun::model {

inline constexpr int kThreadsMax = 16;

struct Clock {
  // The happens-before order of C++.
  std::array<std::uint32_t, kThreadsMax> at{};
  // Also includes what must have come before physically. A peer's answer, for example, comes after
  // its question, though nothing in this process orders them. Loads see at least this. Races are
  // judged by `at`.
  std::array<std::uint32_t, kThreadsMax> known{};

  void join(const Clock& other) {
    for (std::size_t i = 0; i < kThreadsMax; ++i) {
      if (at[i] < other.at[i]) at[i] = other.at[i];
    }
    know(other);
  }
  void know(const Clock& other) {
    for (std::size_t i = 0; i < kThreadsMax; ++i) {
      if (known[i] < other.known[i]) known[i] = other.known[i];
    }
  }
};

}  // namespace gpurun::model
