// Event: a mark in a stream, and the occurrences that recording it makes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "emulated/objects/handle_table.h"
#include "emulated/objects/operation.h"
#include "emulated/objects/shared_event.h"

namespace gpurun::emulated {

class Capture;
class GraphNode;

// One cuEventRecord. It is done when the stream reaches it. A wait refers to the occurrence that
// was current when the wait was issued, so that a later record does not change it.
class Occurrence {
 public:
  using Clock = std::chrono::steady_clock;

  Occurrence() = default;
  // The record number `record` of an event that processes share.
  Occurrence(std::shared_ptr<SharedEvent> event, std::uint64_t record)
      : event_(std::move(event)), record_(record) {}

  bool done() const;
  void wait();
  void complete();
  Clock::time_point when() const;

 private:
  // nullptr: this process's own event, and the members below are used.
  const std::shared_ptr<SharedEvent> event_;
  const std::uint64_t record_ = 0;
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

  // `shared`: for CU_EVENT_INTERPROCESS, else nullptr.
  Event(std::shared_ptr<Context> context, unsigned flags,
        std::shared_ptr<SharedEvent> shared = nullptr)
      : Object(kKind), context_(std::move(context)), flags_(flags), shared_(std::move(shared)) {}

  Context& context() const { return *context_; }
  std::shared_ptr<Context> shared_context() const { return context_; }
  unsigned flags() const { return flags_; }

  const std::shared_ptr<SharedEvent>& shared() const { return shared_; }

  // A new occurrence. Other processes may see that of a shared event at once.
  OccurrencePtr begin() const;
  // nullptr: never recorded.
  OccurrencePtr last() const;
  // Makes `occurrence` the current one.
  void set_last(OccurrencePtr occurrence);

  // The nodes of a capture that the event stands for, from its record in a captured stream until
  // the next record.
  struct CapturedMark {
    std::shared_ptr<Capture> capture;
    std::vector<std::shared_ptr<GraphNode>> nodes;
  };
  CapturedMark captured() const;
  void set_captured(CapturedMark mark);

 private:
  const std::shared_ptr<Context> context_;
  const unsigned flags_;
  const std::shared_ptr<SharedEvent> shared_;
  mutable std::mutex mutex_;
  OccurrencePtr last_;  // Not used for a shared event.
  CapturedMark captured_;
};

using EventPtr = std::shared_ptr<Event>;

// Completes an occurrence. It also runs after a failure, because otherwise its waiters would block
// for ever.
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
