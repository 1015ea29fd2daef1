// Worker: builds the parts of a session, and ends them in the right order.
#include "server/worker/channels/worker.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/thread_name.h"
#include "server/bulk/bulk_lanes.h"
#include "server/worker/execution/decoder.h"
#include "server/worker/execution/executor.h"
#include "server/worker/execution/outbox.h"
#include "server/worker/execution/output_capture.h"
#include "server/worker/stats/statistics_counter.h"
#include "transport/carrier/connection.h"

namespace gpurun::server {
namespace {

// For an owner of WorkerOptions::look_at_channels that expects a change.
constexpr std::chrono::milliseconds kLookSoon{100};

// Sends regular heartbeats, and notices when the client cannot be reached any more.
class LifeSigns {
 public:
  // Calls `look` at once, with each sign of life, and sooner when it asks for that.
  LifeSigns(std::chrono::milliseconds period, Outbox& outbox, Executor& executor,
            std::function<bool()> look)
      : look_(std::move(look)),
        thread_([this, period, &outbox, &executor] { run(period, outbox, executor); }) {}
  ~LifeSigns() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  LifeSigns(const LifeSigns&) = delete;
  LifeSigns& operator=(const LifeSigns&) = delete;

 private:
  void run(std::chrono::milliseconds period, Outbox& outbox, Executor& executor) {
    name_this_thread("gpurun-life");
    std::unique_lock lock(mutex_);
    bool soon = look_();
    auto next = std::chrono::steady_clock::now() + period;
    for (;;) {
      const auto looks = std::chrono::steady_clock::now() + kLookSoon;
      const auto until = soon && looks < next ? looks : next;
      if (changed_.wait_until(lock, until, [this] { return stopping_; })) break;
      if (std::chrono::steady_clock::now() >= next) {
        next = std::chrono::steady_clock::now() + period;
        outbox.heartbeat();
        if (!outbox.failure().ok()) executor.wake();
      }
      soon = look_();
    }
    static_cast<void>(look_());
  }

  const std::function<bool()> look_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;  // Last: it uses the others.
};

// Receives the reports of the bulk lanes. Their failure ends the session.
class SessionEnd {
 public:
  // `carries`: the client takes bytes of copies from the log (Feature::kBytesInItems).
  SessionEnd(transport::Connection& log, Outbox& outbox, bool carries)
      : log_(log), outbox_(outbox), carries_(carries) {}

  // Before listener() is used.
  void set_executor(Executor& executor) { executor_ = &executor; }
  BulkLanes::Listener listener() {
    return {this, [](void* user) { static_cast<SessionEnd*>(user)->executor_->wake(); },
            [](void* user) { static_cast<SessionEnd*>(user)->executor_->go_on(); },
            carries_ ? &SessionEnd::carry : nullptr,
            [](void* user, const Status& cause) { static_cast<SessionEnd*>(user)->fail(cause); }};
  }
  // Why we ended the session ourselves. ok if we did not.
  Status cause() const {
    const std::lock_guard lock(mutex_);
    return cause_.ok() ? outbox_.failure() : cause_;
  }

 private:
  // Sent with the next item, or when the executor or a helper finishes its step.
  static bool carry(void* user, const protocol::BulkHeader& header, ByteView bytes) {
    Outbox& outbox = static_cast<SessionEnd*>(user)->outbox_;
    if (!outbox.takes_copy(bytes.size())) return false;
    protocol::ReplyHeader item;
    item.kind = protocol::ReplyKind::kCopyBytes;
    item.subject = header.transfer;
    item.watermark = header.watermark;
    return outbox.post_later(item, bytes).ok();
  }

  void fail(const Status& cause) {
    {
      const std::lock_guard lock(mutex_);
      if (!cause_.ok()) return;
      cause_ = cause;
    }
    if (cause.code() != Code::kPeerGone) outbox_.goodbye(cause.message());
    log_.shut_down();
  }

  transport::Connection& log_;
  Outbox& outbox_;
  const bool carries_;
  Executor* executor_ = nullptr;
  mutable std::mutex mutex_;
  Status cause_;
};

}  // namespace

Status run_worker(const WorkerOptions& given, WorkerChannels channels) {
  std::unique_ptr<StatisticsCounter> statistics;
  if ((given.features & feature_bit(protocol::Feature::kCounting)) != 0) {
    statistics = std::make_unique<StatisticsCounter>();
  }
  WorkerOptions options = given;
  options.statistics = statistics.get();
  Outbox outbox(*channels.log, options.silence_deadline, statistics.get());
  std::vector<transport::Connection*> bulk;
  for (const auto& connection : channels.bulk) bulk.push_back(connection.get());
  // The lanes outlive the executor, because the driver may write to their memory while a helper
  // waits.
  const auto knows = [&options](protocol::Feature feature) {
    return (options.features & protocol::feature_bit(feature)) != 0;
  };
  transport::RemoteMemory* const remote = knows(protocol::Feature::kPulledCopies) && !bulk.empty()
                                              ? transport::carrier::remote_memory_of(*bulk.front())
                                              : nullptr;
  BulkLanes lanes(bulk, knows(protocol::Feature::kPackedChunks),
                  knows(protocol::Feature::kSpreadCopies), remote,
                  knows(protocol::Feature::kWrittenResults) ? remote : nullptr, options.direct);
  SessionEnd end(*channels.log, outbox, knows(protocol::Feature::kBytesInItems));
  std::unique_ptr<OutputCapture> output;
  if (options.capture_stdout) {
    Result<std::unique_ptr<OutputCapture>> capture = OutputCapture::start(outbox);
    if (!capture.ok()) return capture.status();
    output = *std::move(capture);
  }
  Status ended;
  {
    Executor executor(options, outbox, &lanes);
    end.set_executor(executor);
    if (output != nullptr) {
      executor.set_before_reply([](void* of) { static_cast<OutputCapture*>(of)->drain(); },
                                output.get());
    }
    if (ended = lanes.start(end.listener()); !ended.ok()) return ended;
    if (options.late != nullptr) {
      if (ended = options.late->start(lanes); !ended.ok()) return ended;
    }
    const auto look = [&options, &channels] {
      return options.look_at_channels && options.look_at_channels(channels);
    };
    std::optional<LifeSigns> life_signs(std::in_place, options.heartbeat, outbox, executor, look);
    Decoder decoder(*channels.log, outbox, executor, options.silence_deadline, options.spin);
    ended = decoder.run();
    if (ended.code() == Code::kPeerGone) {
      // The reason for our own shutdown is more useful than the message of a closed connection.
      const Status cause = end.cause();
      if (!cause.ok()) ended = cause;
    } else {
      outbox.goodbye(ended.ok() ? std::string("goodbye") : ended.message());
    }
    channels.log->shut_down();
    life_signs.reset();  // Its last look comes before the process ends.
    if (options.late != nullptr) options.late->stop();
    lanes.stop();
    if (statistics != nullptr) {
      // A process that dies fetches no statistics. With a private server the line is on its
      // terminal, behind its last output, and must not hide that.
      const std::string untold = statistics->untold();
      if (!untold.empty()) {
        GPURUN_LOG(kInfo, "%s", untold.c_str());
        GPURUN_LOG(kWarning, "a process has left no statistics or trace, as when a signal ends it");
      }
    }
    if (options.ended != nullptr) options.ended(ended);
  }
  return ended;
}

}  // namespace gpurun::server
