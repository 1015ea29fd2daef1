// HelperThreadPool: threads on demand for work that may block in the driver. These are calls that
// the client waits for, and ordered host calls. An idle thread is reused. No thread outlives this
// object.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"

namespace gpurun::server {

// The most threads of one worker. Further work waits in a queue.
inline constexpr std::size_t kHelperThreadsMax = 1024;

// Any thread.
class HelperThreadPool {
 public:
  HelperThreadPool() = default;
  ~HelperThreadPool();  // Waits for all work to end.
  HelperThreadPool(const HelperThreadPool&) = delete;
  HelperThreadPool& operator=(const HelperThreadPool&) = delete;

  // Runs `work` on a thread that may block. kResourceExhausted: there is no thread and none will
  // become free. `work` then never runs.
  Status run(std::function<void()> work);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace gpurun::server
