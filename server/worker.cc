#include "server/worker.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "server/decoder.h"
#include "server/executor.h"
#include "server/outbox.h"

namespace gpurun::server {
namespace {

// Says regularly that we live, and notices when nobody can be told any more.
class LifeSigns {
 public:
  LifeSigns(std::chrono::milliseconds period, Outbox& outbox, Executor& executor)
      : thread_([this, period, &outbox, &executor] { run(period, outbox, executor); }) {}
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
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, period, [this] { return stopping_; })) {
      outbox.heartbeat();
      if (!outbox.failure().ok()) executor.wake();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace

Status run_worker(const WorkerOptions& options, WorkerChannels channels) {
  Outbox outbox(*channels.log, options.silence_deadline);
  Status ended;
  {
    Executor executor(options, outbox);
    const LifeSigns life_signs(options.heartbeat, outbox, executor);
    Decoder decoder(*channels.log, outbox, executor, options.silence_deadline);
    ended = decoder.run();
    if (ended.code() == Code::kPeerGone) {
      // Why we hung up says more than that the connection is closed.
      const Status cause = outbox.failure();
      if (!cause.ok()) ended = cause;
    } else {
      outbox.goodbye(ended.ok() ? std::string("goodbye") : ended.message());
    }
    channels.log->shut_down();
    if (options.ended != nullptr) options.ended(ended);
  }
  return ended;
}

}  // namespace gpurun::server
