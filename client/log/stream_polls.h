// StreamPolls: what one thread has learned of the streams that it queries.
//
// The answer of the worker to the last query of a few streams is kept. If the stream was not
// complete, the worker may have promised a report (kReplyFlagTells), which comes without a further
// query. EarlyAnswers::poll() decides what the thread may be answered from this (docs/adr/0009).
//
// Only its own thread uses it, except for told().
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
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
  // While a report is to come, a poll asks the worker after this time. The report may be late,
  // because the worker lacks helpers.
  static constexpr std::chrono::milliseconds kPromised{100};
  // Without a promised report, polls ask after an eighth of the time since the first, within these
  // bounds.
  static constexpr std::chrono::microseconds kAskAfterMin{20};
  static constexpr std::chrono::milliseconds kAskAfterMax{1};

  struct Poll {
    Handle context = 0;
    Handle stream = 0;          // As CallSite::stream.
    std::uint64_t asked = 0;    // The last query that the worker answered.
    bool complete = false;      // Its answer.
    std::uint64_t came = 0;     // EventCompletions::came() at the query.
    std::uint64_t promise = 0;  // The query of which the worker reports the end. 0: none.
    Clock::time_point first;    // The first answer of a row of polls.
    Clock::time_point answered;

    // Returns whether a poll that nothing contradicts may still be answered as "not ready".
    bool may_go_on(bool report_comes, Clock::time_point now) const noexcept {
      if (report_comes) return now - answered < kPromised;
      const Clock::duration grown = (answered - first) / 8;
      return now - answered < std::clamp<Clock::duration>(grown, kAskAfterMin, kAskAfterMax);
    }
  };
  // An answer of the worker.
  struct Answer {
    Handle context = 0;
    Handle stream = 0;
    std::uint64_t sequence = 0;  // Of the query.
    bool complete = false;
    bool promised = false;  // The worker reports the end.
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
    if (answer.promised || !report_comes(poll)) poll.promise = answer.promised ? poll.asked : 0;
  }

  // Returns whether the promised report is still to come.
  bool report_comes(const Poll& poll) const noexcept {
    return poll.promise != 0 && told_.load(std::memory_order_acquire) != poll.promise;
  }
  // Returns the call up to which the stream is complete, or 0. `bulk_completions` have arrived. The
  // program may learn it only once the report counts as something that came.
  std::uint64_t complete_through(const Poll& poll, std::uint64_t bulk_completions) const noexcept {
    if (poll.complete) return poll.asked;
    if (poll.promise == 0 || told_.load(std::memory_order_acquire) != poll.promise) return 0;
    return bulk_completions >= watermark_.load(std::memory_order_relaxed) ? poll.promise : 0;
  }

  // The worker reports that what precedes the query `sequence` in its stream is complete. Its bytes
  // are there after `watermark` bulk completions. For the thread that reads the log. Only the
  // latest report is kept. A poll that finds another one asks the worker.
  void told(std::uint64_t sequence, std::uint64_t watermark) noexcept {
    watermark_.store(watermark, std::memory_order_relaxed);
    told_.store(sequence, std::memory_order_release);
  }

  void forget() noexcept {
    polls_.fill(Poll{});
    told_.store(0, std::memory_order_relaxed);
  }

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
  std::atomic<std::uint64_t> told_{0};
  std::atomic<std::uint64_t> watermark_{0};
};

}  // namespace gpurun::client
