// RunnerPool: the threads that execute streams. A stream with work holds one of them until its
// queue is empty; since every busy stream has its own, one that waits for another never stops it.
#pragma once

#include <memory>

namespace gpurun::emulated {

// Something that a runner executes: a stream's queue.
class Runnable {
 public:
  virtual ~Runnable() = default;
  virtual void drain() = 0;
};

// Hands `work` to an idle runner, or to a new one. Threads of ours block all signals, and end when
// they were idle for a while. False: the system gives no more threads.
bool run_soon(std::shared_ptr<Runnable> work);

// For the child of a fork, where those threads do not exist.
void forget_runners_after_fork();

}  // namespace gpurun::emulated
