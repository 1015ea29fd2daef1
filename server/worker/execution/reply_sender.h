// ReplySender: all that the executor sends to the client: replies, failures, notices of events and
// of work that is done, and requests for bytes.
//
// An item may name bytes that the client must have first, by a watermark. A watermark counts the
// copies out that are complete on the device, so taking one may settle completions. An `ended` of
// Completions must not do that. It leaves such work by later(), and run_due() does it.
//
// Any thread, except where a comment names one. The mutex is a leaf and is not held while work
// runs.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "protocol/log/record.h"
#include "server/bulk/bulk_lanes.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/call_bulk.h"
#include "server/worker/execution/completions.h"
#include "server/worker/execution/event_registry.h"
#include "server/worker/execution/outbox.h"
#include "server/worker/execution/worker_options.h"
#include "server/worker/stats/statistics_counter.h"

namespace gpurun::server {

class ReplySender {
 public:
  // Borrows all. Without bulk lanes all watermarks are 0.
  ReplySender(const WorkerOptions& options, Outbox& outbox, BulkLanes* bulk, CallBulk& call_bulk,
              Completions& completions, EventRegistry& events)
      : options_(options),
        outbox_(outbox),
        bulk_(bulk),
        call_bulk_(call_bulk),
        completions_(completions),
        events_(events) {}
  ReplySender(const ReplySender&) = delete;
  ReplySender& operator=(const ReplySender&) = delete;

  // `before` is called before each reply, so that printed output goes first. Set before the first
  // call.
  void set_before_reply(void (*before)(void* user), void* user) noexcept {
    before_reply_ = before;
    before_reply_user_ = user;
  }

  // Ends the call: its reply, or its failure if the client does not wait. `settled`: completions
  // has already reported the work that is done on the device.
  void answer(const Call& call, int result, bool settled = false);
  // The call was answered, or the client does not wait for it, and it failed. `created`: the
  // client's handle that the call would have created.
  void report(const protocol::RecordHeader& header, int result, std::uint64_t created = 0);
  // The record of `event` by the call `record` is complete. `about` is the call that found this.
  // Sent with the next item, or when the executor or a helper finishes its step.
  void tell_event_done(const protocol::RecordHeader& about, std::uint64_t event,
                       std::uint64_t record, int result, bool settled);
  // All work that was queued in the context before the call `about` is complete.
  void tell_work_done(const protocol::RecordHeader& about, std::uint64_t ticket);
  // `call` has recorded an event. The client is notified of the record's end if it announced that
  // it would ask. The executor's role, with the call's context current.
  void note_record(const Call& call);
  // Requests the bytes of a copy in once its stream has reached it. Returns 0, or the CUresult, and
  // then requests nothing. The executor's role, with the call's context current.
  int want_bytes(const Call& call);

  // For work that an `ended` of completions finds but must not do itself, since it needs a
  // watermark. `tells`: it posts a completion notice by itself, and not by answer().
  void later(std::function<void()> work, bool tells = false);
  // Does the work of later(). Not within an `ended`.
  void run_due();

  // Sends bytes of copies that this thread has gathered, before other items.
  void send_gathered();
  // Sends these and then the outbox.
  void send_all();
  // The watermark of copies out that have been sent to the client.
  std::uint64_t copies_said() const { return bulk_ == nullptr ? 0 : bulk_->out().watermark_said(); }

 private:
  struct Due {
    std::function<void()> work;
    bool tells;
  };

  void print_first();
  std::uint64_t watermark(bool settled);

  const WorkerOptions& options_;
  Outbox& outbox_;
  BulkLanes* const bulk_;
  CallBulk& call_bulk_;
  Completions& completions_;
  EventRegistry& events_;
  StatisticsCounter* const statistics_ = options_.statistics;  // nullptr: statistics are off.
  void (*before_reply_)(void* user) = nullptr;
  void* before_reply_user_ = nullptr;

  std::mutex mutex_;
  std::vector<Due> due_;  // Under mutex_.
};

}  // namespace gpurun::server
