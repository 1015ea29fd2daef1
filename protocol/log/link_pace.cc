// LinkPace: two decaying sums of bytes and times.
#include "protocol/log/link_pace.h"

namespace gpurun::protocol {
namespace {

// The cost of an empty send. It is subtracted, because it says nothing about the connection.
constexpr double kSendNs = 20'000;

}  // namespace

void LinkPace::Pace::add(double of_bytes, double of_ns, double horizon) noexcept {
  const double keep = horizon / (horizon + of_bytes);
  bytes = bytes * keep + of_bytes;
  ns = ns * keep + of_ns;
}

void LinkPace::sent(std::size_t wire_bytes, Clock::duration took) noexcept {
  if (wire_bytes == 0) return;
  const auto bytes = static_cast<double>(wire_bytes);
  double ns = std::max(0.0, std::chrono::duration<double, std::nano>(took).count() - kSendNs);
  if (wire_bytes < kTellingBytes) ns = known() ? std::min(ns, bytes * ns_per_byte()) : 0;
  soon_.add(bytes, ns, kSoonBytes);
  late_.add(bytes, ns, kLateBytes);
}

}  // namespace gpurun::protocol
