// Runner pool: an elastic pool with one thread for each queue that has work. Idle threads are
// reused, newest first.
#include "emulated/objects/runner_pool.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace gpurun::emulated {
namespace {

constexpr auto kIdleLifetime = std::chrono::seconds(2);
constexpr std::size_t kStackBytes = std::size_t{1} << 20;

struct Runner {
  std::condition_variable wake;
  std::shared_ptr<Runnable> work;
};

struct Pool {
  std::mutex mutex;
  std::vector<Runner*> idle;
};

// Never destroyed.
Pool& the_pool() {
  static Pool* const pool = new Pool;
  return *pool;
}

// Keeps one idle runner for ever, so that a program that pauses does not pay for a thread.
void* run_loop(void* argument) {
  std::unique_ptr<Runner> self(static_cast<Runner*>(argument));
  Pool& pool = the_pool();
  while (true) {
    self->work->drain();
    self->work.reset();
    std::unique_lock lock(pool.mutex);
    pool.idle.push_back(self.get());
    while (self->work == nullptr) {
      if (self->wake.wait_for(lock, kIdleLifetime) == std::cv_status::timeout &&
          self->work == nullptr && pool.idle.size() > 1) {
        std::erase(pool.idle, self.get());
        return nullptr;
      }
    }
  }
}

bool start_runner(std::shared_ptr<Runnable> work) {
  auto runner = std::make_unique<Runner>();
  runner->work = std::move(work);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  sigset_t all, before;
  sigfillset(&all);
  // A fault inside a kernel must reach its thread's handler, so these signals stay open.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int failed = pthread_create(&thread, &attributes, run_loop, runner.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (failed != 0) return false;
  runner.release();
  return true;
}

}  // namespace

bool run_soon(std::shared_ptr<Runnable> work) {
  Pool& pool = the_pool();
  {
    const std::lock_guard lock(pool.mutex);
    if (!pool.idle.empty()) {
      Runner* runner = pool.idle.back();
      pool.idle.pop_back();
      runner->work = std::move(work);
      runner->wake.notify_one();
      return true;
    }
  }
  return start_runner(std::move(work));
}

}  // namespace gpurun::emulated
