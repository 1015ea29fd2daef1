// Silence: how long a device has owed the completion of a request.
//
// A device reports a lost fabric within 1.9 s (transitions.h). Some devices stop without a report:
// rxe does when its own interface goes down while requests are under way. Nothing then wakes either
// end, so the sender must notice the silence itself.
//
// Only some requests report their completion. When the last requests of a quiet sender do not, the
// sender posts one that does.
//
// The lock of the queue pair guards it.
#pragma once

#include <chrono>
#include <cstdint>

namespace gpurun::transport::rdma {

enum class SilenceStep : std::uint8_t { kNothing, kAskForReport, kFail };

class Silence {
 public:
  using Clock = std::chrono::steady_clock;
  // Longer than a device takes to report a lost fabric.
  static constexpr std::chrono::milliseconds kSilenceMax{3000};
  // Without a new request, before the sender asks for a report.
  static constexpr std::chrono::milliseconds kQuiet{500};

  // Request `number` is posted and will report. `completed`: the last reported one.
  void will_report(std::uint64_t number, std::uint64_t completed, Clock::time_point now) noexcept {
    if (asked_ <= completed) since_ = now;
    asked_ = number;
  }
  // Some requests have been reported.
  void reported(Clock::time_point now) noexcept { since_ = now; }

  // What the sender must do, of which `posted` is the last request. Call it behind a look for
  // completions. A thread that waits calls it at least every few seconds.
  SilenceStep look(std::uint64_t posted, std::uint64_t completed, Clock::time_point now) noexcept {
    if (posted == completed) return SilenceStep::kNothing;
    if (asked_ > completed) {
      return now - since_ > kSilenceMax ? SilenceStep::kFail : SilenceStep::kNothing;
    }
    if (posted != last_posted_) {
      last_posted_ = posted;
      since_ = now;
    }
    return now - since_ > kQuiet ? SilenceStep::kAskForReport : SilenceStep::kNothing;
  }

 private:
  std::uint64_t asked_ = 0;        // The last request that reports.
  std::uint64_t last_posted_ = 0;  // Seen by look().
  Clock::time_point since_;        // Of the debt, of the last report, or of `last_posted_`.
};

}  // namespace gpurun::transport::rdma
