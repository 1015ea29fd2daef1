// RunnerPool: the threads that execute streams. A stream with work holds one thread until its queue
// is empty. Every busy stream has a thread of its own, so a stream that waits for another never
// blocks it.
#pragma once

#include <memory>

namespace gpurun::emulated {

// The work of a runner: a stream's queue.
class Runnable {
 public:
  virtual ~Runnable() = default;
  virtual void drain() = 0;
};

// Hands `work` to an idle runner, or to a new one. Runners block all signals, and end after an idle
// time. False: the system gives no more threads.
bool run_soon(std::shared_ptr<Runnable> work);

}  // namespace gpurun::emulated
