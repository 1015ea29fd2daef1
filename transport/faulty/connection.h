// Faulty connection: wraps another Connection and injects faults from a seed. Faults are delays,
// short reads, corrupted bytes, and cuts in the middle of a message. The same seed gives the same
// faults at the same byte offsets, whatever the timing.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace gpurun::transport::faulty {

// The faults. Rates are "one in N calls", 0 for never. Offsets count the payload bytes that this
// end has sent since it was connected.
struct Plan {
  std::uint64_t seed = 1;
  // Harmless: a correct caller sees nothing.
  std::uint32_t delay_one_in = 0;  // A call sleeps up to delay_us_max first.
  std::uint32_t delay_us_max = 200;
  std::uint32_t short_read_one_in = 0;  // receive() returns bytes_min although more has come.
  std::uint32_t split_one_in = 0;       // A send goes out in several pieces.
  // Harmful.
  std::uint32_t corrupt_one_in_bytes = 0;  // About one sent byte in so many is changed.
  std::uint64_t cut_after_bytes = kNever;  // This byte is the last to go out. Then both directions
                                           // end. May cut a message.
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  // Delays, short reads and splits only, from `seed`.
  static Plan harmless(std::uint64_t seed);
};

std::unique_ptr<Connection> wrap(std::unique_ptr<Connection> inner, const Plan& plan);

}  // namespace gpurun::transport::faulty
