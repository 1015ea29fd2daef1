// Event: a mark in a stream, and a recorded occurrence of it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "server/emulated/objects/handle_table.h"
#include "server/emulated/objects/operation.h"

namespace gpurun::emulated {

class Capture;
class GraphNode;

// One cuEventRecord: done once the stream got there. A wait names the occurrence that was current
// when the wait was issued, so that a later record does not move it.
class Occurrence {
 public:
  using Clock = std::chrono::steady_clock;

  bool done() const;
  void wait();
  void complete();
  Clock::time_point when() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  Clock::time_point when_;
};

using OccurrencePtr = std::shared_ptr<Occurrence>;

// Any thread.
class Event final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kEvent;

  Event(std::shared_ptr<Context> context, unsigned flags)
      : Object(kKind), context_(std::move(context)), flags_(flags) {}

  Context& context() const { return *context_; }
  unsigned flags() const { return flags_; }

  // nullptr: never recorded.
  OccurrencePtr last() const;
  // Makes `occurrence` the current one.
  void set_last(OccurrencePtr occurrence);

  // Recorded in a captured stream: stands for these nodes of that capture until recorded again.
  struct CapturedMark {
    std::shared_ptr<Capture> capture;
    std::vector<std::shared_ptr<GraphNode>> nodes;
  };
  CapturedMark captured() const;
  void set_captured(CapturedMark mark);

 private:
  const std::shared_ptr<Context> context_;
  const unsigned flags_;
  mutable std::mutex mutex_;
  OccurrencePtr last_;
  CapturedMark captured_;
};

using EventPtr = std::shared_ptr<Event>;

// Completes an occurrence; also after a failure, or whoever waits would wait for ever.
class RecordOperation final : public Operation {
 public:
  explicit RecordOperation(OccurrencePtr occurrence) : occurrence_(std::move(occurrence)) {}
  CUresult run(Context&) override;
  bool runs_after_failure() const override { return true; }
  bool is_mark() const override { return true; }

 private:
  OccurrencePtr occurrence_;
};

class WaitOperation final : public Operation {
 public:
  explicit WaitOperation(OccurrencePtr occurrence) : occurrence_(std::move(occurrence)) {}
  CUresult run(Context&) override;
  bool runs_after_failure() const override { return true; }

 private:
  OccurrencePtr occurrence_;
};

}  // namespace gpurun::emulated
