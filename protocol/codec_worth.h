// CodecWorth: whether a codec is worth its time on a connection, by what it made of bytes so far.
// It is tried where even its worst case costs little beside the wire, less and less often where
// nothing came of it (docs/adr/0028).
//
// One thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <random>

namespace gpurun::protocol {

class CodecWorth {
 public:
  using Clock = std::chrono::steady_clock;

  // Where a byte takes `wire` nanoseconds on the connection: whether what the codec leaves of one,
  // and its own time, come to clearly less; where it was of no use, whether a trial may cost that.
  bool is_worthwhile(double wire) const noexcept;
  // What it leaves of a byte. Where nothing is known, or all that is known is what it could not
  // make smaller, half is assumed, and a trial soon knows.
  double left_of_a_byte() const noexcept;
  // It is worthwhile: whether to compress this time. False while the next trial is not due.
  bool is_due() noexcept;
  // It was not worthwhile, once more: it may have been measured in a bad moment.
  void passed_over() noexcept;

  // It made `out` bytes of `in`; and it could not make `in` bytes clearly smaller.
  void compressed(std::size_t in, std::size_t out, Clock::duration took) noexcept;
  void gave_up(std::size_t in, Clock::duration took) noexcept;

  // Until the codec is measured it is taken to need so much for a byte.
  static constexpr double kGuessNs = 1.6;
  // Compressed by less, bytes go as they are.
  static constexpr double kWorthwhileShare = 15.0 / 16;
  // Turns between two trials where compressing is of no use: so many on average at most, and never
  // twice as many. Not the same number each time, for bytes of two kinds may come in turns.
  static constexpr unsigned kTrialEveryMax = 64;

 private:
  void add(std::size_t in, std::size_t out, Clock::duration took) noexcept;

  // Sums that forget: each turn weighs 7/8 of the one behind it.
  double in_ = 0, ns_ = 0, out_ = 0;
  unsigned trial_every_ = 1, until_trial_ = 0, passed_over_ = 0;
  std::minstd_rand chance_;
};

}  // namespace gpurun::protocol
