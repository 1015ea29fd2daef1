// CodecWorth: decides whether a codec is worth its time on a connection, from its yield so far. The
// codec is tried where even its worst case costs little compared with the wire. Where it was
// useless, it is tried less and less often (docs/adr/0028).
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

  // `wire` is the connection's time for a byte, in nanoseconds. True when the codec's time and the
  // wire's time for its output are clearly less than that together. Where the codec was useless,
  // true when a trial may cost that much.
  bool is_worthwhile(double wire) const noexcept;
  // The codec's output for a byte of input. Half is assumed where nothing is known, or where it
  // only failed so far. A trial soon finds the truth.
  double left_of_a_byte() const noexcept;
  // Call when is_worthwhile(). Returns whether to compress this time: false until the next trial.
  bool is_due() noexcept;
  // Call when not is_worthwhile(). After many calls the measurement is forgotten, because it may
  // have been made in a bad moment.
  void passed_over() noexcept;

  // The codec made `out` bytes of `in`. gave_up(): it could not make `in` bytes clearly smaller.
  void compressed(std::size_t in, std::size_t out, Clock::duration took) noexcept;
  void gave_up(std::size_t in, Clock::duration took) noexcept;

  // The codec's assumed time for a byte, in nanoseconds, until it is measured.
  static constexpr double kGuessNs = 1.6;
  // Bytes go uncompressed unless compression leaves less than this share.
  static constexpr double kWorthwhileShare = 15.0 / 16;
  // The average number of turns between two trials of a useless codec, at most, and never twice as
  // many. The number varies, because bytes of two kinds may alternate.
  static constexpr unsigned kTrialEveryMax = 64;

 private:
  void add(std::size_t in, std::size_t out, Clock::duration took) noexcept;

  // Decaying sums: each turn keeps 7/8 of the earlier sum.
  double in_ = 0, ns_ = 0, out_ = 0;
  unsigned trial_every_ = 1, until_trial_ = 0, passed_over_ = 0;
  std::minstd_rand chance_;
};

}  // namespace gpurun::protocol
