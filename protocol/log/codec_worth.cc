// CodecWorth: compares the codec's time and yield with the wire's time.
#include "protocol/log/codec_worth.h"

#include <algorithm>

namespace gpurun::protocol {
namespace {

constexpr double kKeep = 7.0 / 8;

}  // namespace

// A compressed byte costs the codec's time, and the wire's time for what is left of it.
bool CodecWorth::is_worthwhile(double wire) const noexcept {
  const double codec = in_ == 0 ? kGuessNs : ns_ / in_;
  // Where the codec was useless, a trial costs at most its time. At its rarest that is a share of
  // 1/kTrialEveryMax of a turn, and never more than the wire's time.
  if (trial_every_ > 1) return codec < wire / 2;
  return codec + wire * left_of_a_byte() < wire * kWorthwhileShare;
}

double CodecWorth::left_of_a_byte() const noexcept {
  return in_ == 0 || trial_every_ > 1 ? 0.5 : out_ / in_;
}

bool CodecWorth::is_due() noexcept {
  if (until_trial_ == 0) return true;
  --until_trial_;
  return false;
}

void CodecWorth::passed_over() noexcept {
  if (in_ == 0 || ++passed_over_ != kTrialEveryMax) return;
  in_ = ns_ = out_ = 0;
  passed_over_ = 0;
}

void CodecWorth::add(std::size_t in, std::size_t out, Clock::duration took) noexcept {
  in_ = in_ * kKeep + static_cast<double>(in);
  ns_ = ns_ * kKeep + std::chrono::duration<double, std::nano>(took).count();
  out_ = out_ * kKeep + static_cast<double>(out);
}

void CodecWorth::compressed(std::size_t in, std::size_t out, Clock::duration took) noexcept {
  if (trial_every_ > 1) in_ = ns_ = out_ = 0;  // Earlier bytes were of another kind.
  add(in, out, took);
  trial_every_ = 1;
  until_trial_ = 0;
}

void CodecWorth::gave_up(std::size_t in, Clock::duration took) noexcept {
  add(in, in, took);
  trial_every_ = std::min(trial_every_ + 1, kTrialEveryMax);
  until_trial_ = trial_every_ / 2 + static_cast<unsigned>(chance_() % trial_every_);
}

}  // namespace gpurun::protocol
