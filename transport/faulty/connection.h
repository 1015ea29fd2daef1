// Connection that wraps another and misbehaves from a seed: delays, short reads, corrupted bytes,
// and cuts in the middle of a message. The same seed gives the same faults at the same byte
// offsets, whatever the timing.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace gpurun::transport::faulty {

// What goes wrong. Rates are "one in N calls", 0 for never; offsets count payload bytes sent by
// this end since it was connected.
struct Plan {
  std::uint64_t seed = 1;
  // Harmless: a correct caller sees nothing.
  std::uint32_t delay_one_in = 0;  // A call sleeps up to delay_us_max first.
  std::uint32_t delay_us_max = 200;
  std::uint32_t short_read_one_in = 0;  // receive() gives bytes_min although more is there.
  std::uint32_t split_one_in = 0;       // A send goes out in several pieces.
  // Harmful.
  std::uint32_t corrupt_one_in_bytes = 0;  // About one byte in so many sent is changed.
  std::uint64_t cut_after_bytes = kNever;  // The byte that is the last to go out; then both
                                           // directions end. Truncates a message as a side effect.
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  // Delays, short reads and splits only, from `seed`.
  static Plan harmless(std::uint64_t seed);
};

std::unique_ptr<Connection> wrap(std::unique_ptr<Connection> inner, const Plan& plan);

}  // namespace gpurun::transport::faulty
