// BackgroundWork: one thread of low priority for work that no thread waits for: recompiling hot
// code.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>
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

  // The running item, for its own thread. An item is attached to its owner at first.
  class Job {
   public:
    explicit Job(BackgroundWork& all) : all_(all) {}
    // Becomes true when the result is of no use.
    const std::atomic<bool>& stop() const { return all_.stop_item_; }
    // The item does not use its owner until attach(), so forget() does not wait for it.
    void detach();
    // Whether the owner still exists. The item may then use it again.
    bool attach();

   private:
    BackgroundWork& all_;
  };
  using Work = std::function<void(Job&)>;

  BackgroundWork() = default;
  ~BackgroundWork() { stop(); }
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  // False: too much work is waiting, no thread can be had, or stop() was called.
  bool add(const void* owner, Work work);
  // Whether an item is being run.
  bool busy() {
    const std::lock_guard lock(mutex_);
    return working_;
  }
  // Drops the owner's waiting work, stops the owner's running item, and waits while that is
  // attached.
  void forget(const void* owner);
  // Drops all waiting work, stops the running item, waits for its end, and refuses further work.
  // Also for the end of the process, because destructors of what the work uses run then.
  void stop();

 private:
  struct Item {
    const void* owner;
    Work work;
  };
  static void* run(void* self);
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> waiting_;
  const void* working_for_ = nullptr;  // nullptr: no item is run, or its owner is gone.
  bool working_ = false;
  bool attached_ = false;
  bool started_ = false;
  bool stopping_ = false;
  std::atomic<bool> stop_item_{false};
  pid_t process_ = 0;  // In a child of fork() the thread does not exist.
  pthread_t thread_{};
};

}  // namespace gpurun::emulated
