// Thread: a thread of ours in the program's process, with all signals blocked and a small stack.
#pragma once

#include <pthread.h>

#include "base/status.h"

namespace gpurun::client {

class Thread {
 public:
  Thread() = default;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  // It must have been joined, left alone or never started.
  ~Thread() = default;

  // `name`: at most 15 bytes, for debuggers. kResourceExhausted: no thread could be started.
  Status start(const char* name, void* (*body)(void*), void* argument) noexcept;
  bool started() const noexcept { return started_; }
  void join() noexcept;
  // Detaches the thread, which runs on.
  void leave_alone() noexcept;

 private:
  pthread_t thread_{};
  bool started_ = false;
};

}  // namespace gpurun::client
