// Vector clocks: how far each thread had come in what this one knows of.
#pragma once

#include <array>
#include <cstdint>

namespace gpurun::model {

inline constexpr int kThreadsMax = 16;

struct Clock {
  // What happens before, as C++ defines it.
  std::array<std::uint32_t, kThreadsMax> at{};
  // And what must have come before physically: a peer's answer comes after what it answers, though
  // nothing in this process says so. Loads see at least this; races go by `at`.
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
