// StreamPolls: what one thread has learned of the streams that it queries.
//
// The answer of the worker to the last query of a few streams is kept. EarlyAnswers::poll() decides
// what the thread may be answered from this (docs/adr/0009).
//
// Only its own thread uses it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "client/log/handles.h"

namespace gpurun::client {

class StreamPolls {
 public:
  using Clock = std::chrono::steady_clock;
  // The streams that a thread may query in turn. Beyond that, queries ask the worker.
  static constexpr std::size_t kStreamsMax = 4;
  // Polls ask the worker after an eighth of the time since the first. They ask after a time between
  // the least one (kAskAfterMin, except in tests) and kAskAfterMax.
  static constexpr std::chrono::microseconds kAskAfterMin{20};
  static constexpr std::chrono::milliseconds kAskAfterMax{1};

  struct Poll {
    Handle context = 0;
    Handle stream = 0;        // As CallSite::stream.
    std::uint64_t asked = 0;  // The last query that the worker answered.
    bool complete = false;    // Its answer.
    std::uint64_t came = 0;   // EventCompletions::came() at the query.
    Clock::time_point first;  // The first answer of a row of polls.
    Clock::time_point answered;

    // Returns whether a poll that nothing contradicts may still be answered as "not ready".
    bool may_go_on(Clock::time_point now, Clock::duration least) const noexcept {
      const Clock::duration grown = (answered - first) / 8;
      return now - answered <
             std::max<Clock::duration>(std::min<Clock::duration>(grown, kAskAfterMax), least);
    }
  };
  // An answer of the worker.
  struct Answer {
    Handle context = 0;
    Handle stream = 0;
    std::uint64_t sequence = 0;  // Of the query.
    bool complete = false;
    std::uint64_t came = 0;
    std::uint64_t last_work = 0;  // This thread's last call that adds work.
  };

  // nullptr: nothing is known of the stream.
  const Poll* find(Handle context, Handle stream) const noexcept {
    for (const Poll& each : polls_) {
      if (each.asked != 0 && each.context == context && each.stream == stream) return &each;
    }
    return nullptr;
  }

  void answered(const Answer& answer, Clock::time_point now) noexcept {
    Poll& poll = slot_of(answer.context, answer.stream);
    const bool goes_on = poll.asked != 0 && !poll.complete && answer.last_work <= poll.asked;
    if (!goes_on) poll.first = now;
    poll.answered = now;
    poll.asked = answer.sequence;
    poll.complete = answer.complete;
    poll.came = answer.came;
  }

  void forget() noexcept { polls_.fill(Poll{}); }

 private:
  Poll& slot_of(Handle context, Handle stream) noexcept {
    for (Poll& each : polls_) {
      if (each.asked != 0 && each.context == context && each.stream == stream) return each;
    }
    Poll& oldest = polls_[next_];
    next_ = (next_ + 1) % polls_.size();
    oldest = Poll{};
    oldest.context = context;
    oldest.stream = stream;
    return oldest;
  }

  std::array<Poll, kStreamsMax> polls_{};
  std::size_t next_ = 0;  // The one that the next new stream replaces.
};

}  // namespace gpurun::client
