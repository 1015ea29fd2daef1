// BackgroundWork: one thread that does what nobody waits for: compiling code that is wanted faster.
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
  // More waits for nothing: whoever is hot asks again.
  static constexpr std::size_t kWaitingMax = 256;

  BackgroundWork() = default;
  ~BackgroundWork() { stop(); }
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  // False: there is too much, or no thread, or it has been stopped.
  bool add(const void* owner, std::function<void()> work);
  // Something is being done.
  bool busy() {
    const std::lock_guard lock(mutex_);
    return working_;
  }
  // Drops the owner's work, and waits for what of it is being done.
  void forget(const void* owner);
  // Drops everything, waits for what is being done, and takes nothing more. Also for the end of the
  // process: what the work uses has destructors that run then.
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
  pid_t process_ = 0;  // In a child made by fork() there is no thread.
  pthread_t thread_{};
};

}  // namespace gpurun::emulated
