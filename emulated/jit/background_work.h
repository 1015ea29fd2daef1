// BackgroundWork: one thread for work that no thread waits for: recompiling hot code.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace gpurun::emulated {

// Any thread. The thread starts with the first work.
class BackgroundWork {
 public:
  // Bound of waiting items. add() fails beyond it, and a kernel that stays hot asks again later.
  static constexpr std::size_t kWaitingMax = 256;

  BackgroundWork() = default;
  ~BackgroundWork() { stop(); }
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  // False: too much work is waiting, no thread can be had, or stop() was called.
  bool add(const void* owner, std::function<void()> work);
  // Whether an item is being run.
  bool busy() {
    const std::lock_guard lock(mutex_);
    return working_;
  }
  // Drops the owner's waiting work, and waits while an item of the owner runs.
  void forget(const void* owner);
  // Drops all waiting work, waits for the running item, and refuses further work. Also for the end
  // of the process, because destructors of what the work uses run then.
  void stop();

 private:
  struct Item {
    const void* owner;
    std::function<void()> work;
  };
  static void* run(void* self);
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> waiting_;
  const void* working_for_ = nullptr;
  bool working_ = false;
  bool started_ = false;
  bool stopping_ = false;
  pid_t process_ = 0;  // In a child of fork() the thread does not exist.
  pthread_t thread_{};
};

}  // namespace gpurun::emulated
