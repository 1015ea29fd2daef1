// LinkPace: what a byte takes on one connection, measured by what its sends took.
//
// One thread at a time: who sends on the connection.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace gpurun::protocol {

class LinkPace {
 public:
  using Clock = std::chrono::steady_clock;

  // Something has been sent.
  bool known() const noexcept { return soon_.bytes != 0; }
  // Nanoseconds a byte; once known(). The time of a send counts for less with each byte behind it,
  // soon or late: the slower of the two is believed. What a socket's buffer takes at once says
  // nothing of the link, and one that was fast is soon found slow.
  double ns_per_byte() const noexcept { return std::max(soon_.per_byte(), late_.per_byte()); }

  // The send of so many bytes took so long.
  void sent(std::size_t wire_bytes, Clock::duration took) noexcept;

  // What holds up fewer bytes is not the link's pace; that they were quick may be.
  static constexpr std::size_t kTellingBytes = 16384;
  // A time counts for half or less after so many.
  static constexpr double kSoonBytes = 1 << 20, kLateBytes = 8 << 20;

 private:
  struct Pace {
    double bytes = 0, ns = 0;
    void add(double of_bytes, double of_ns, double horizon) noexcept;
    double per_byte() const noexcept { return ns / bytes; }
  };
  Pace soon_, late_;
};

}  // namespace gpurun::protocol
