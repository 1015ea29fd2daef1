// Thread: a thread of ours inside somebody else's process: all signals blocked, a small stack.
#pragma once

#include <pthread.h>

#include "base/status.h"

namespace gpurun::client {

class Thread {
 public:
  Thread() = default;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  // Must have been joined, left alone or never started.
  ~Thread() = default;

  // `name`: at most 15 bytes, for debuggers. kResourceExhausted: no thread to be had.
  Status start(const char* name, void* (*body)(void*), void* argument) noexcept;
  bool started() const noexcept { return started_; }
  void join() noexcept;
  // It runs on, and nobody joins it.
  void leave_alone() noexcept;

 private:
  pthread_t thread_{};
  bool started_ = false;
};

}  // namespace gpurun::client
