// LinkPace: the time that one connection takes for a byte, measured by its sends.
//
// One thread at a time: the one that sends on the connection.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace gpurun::protocol {

class LinkPace {
 public:
  using Clock = std::chrono::steady_clock;

  // True when something has been sent.
  bool known() const noexcept { return soon_.bytes != 0; }
  // Nanoseconds for a byte. Call when known(). Two averages forget old sends, one soon and one
  // late, and the slower counts. So bytes that a socket's buffer takes at once do not make the link
  // look fast. A fast link that becomes slow is soon noticed.
  double ns_per_byte() const noexcept { return std::max(soon_.per_byte(), late_.per_byte()); }

  // A send of `wire_bytes` took `took`.
  void sent(std::size_t wire_bytes, Clock::duration took) noexcept;

  // A delay of fewer bytes is not the link's pace, so they can only show that it is fast.
  static constexpr std::size_t kTellingBytes = 16384;
  // After this many bytes a send counts for half or less.
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
