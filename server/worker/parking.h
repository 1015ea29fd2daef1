// Parking: threads on demand for what may block in the driver: calls that the client waits for, and
// ordered host calls. An idle thread is used again; no thread outlives this object.
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

// Threads of one worker; work waits beyond.
inline constexpr std::size_t kParkingThreadsMax = 1024;

// Any thread.
class Parking {
 public:
  Parking() = default;
  ~Parking();  // Waits for all work to end.
  Parking(const Parking&) = delete;
  Parking& operator=(const Parking&) = delete;

  // Runs `work` on a thread that may block. kResourceExhausted: there is no thread, nor will one
  // become free; nothing will run.
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
