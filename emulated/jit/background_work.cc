// A queue and its thread, which takes no signals.
#include "emulated/jit/background_work.h"

#include <signal.h>

#include <algorithm>
#include <utility>

namespace gpurun::emulated {

namespace {

constexpr std::size_t kStackBytes = std::size_t{64} << 20;  // As compiler.cc's threads.

// Launches go first. A lower priority would delay the code that makes them faster for too long.
constexpr int kNiceness = 5;

bool start_quiet_thread(pthread_t* thread, void* (*function)(void*), void* argument) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(thread, &attributes, function, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  return error == 0;
}

}  // namespace

bool BackgroundWork::add(const void* owner, Work work) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || waiting_.size() >= kWaitingMax) return false;
  if (!started_) {
    process_ = getpid();
    started_ = start_quiet_thread(&thread_, run, this);
    if (!started_) return false;
  }
  waiting_.push_back({owner, std::move(work)});
  changed_.notify_all();
  return true;
}

void BackgroundWork::forget(const void* owner) {
  std::unique_lock lock(mutex_);
  std::erase_if(waiting_, [owner](const Item& item) { return item.owner == owner; });
  if (process_ != getpid() || working_for_ != owner) return;
  stop_item_.store(true, std::memory_order_relaxed);
  changed_.wait(lock, [this, owner] { return working_for_ != owner || !attached_; });
  if (working_for_ == owner) working_for_ = nullptr;
}

void BackgroundWork::Job::detach() {
  const std::lock_guard lock(all_.mutex_);
  all_.attached_ = false;
  all_.changed_.notify_all();
}

bool BackgroundWork::Job::attach() {
  const std::lock_guard lock(all_.mutex_);
  all_.attached_ = all_.working_for_ != nullptr;
  return all_.attached_;
}

void BackgroundWork::stop() {
  if (process_ != 0 && process_ != getpid()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    stop_item_.store(true, std::memory_order_relaxed);
    waiting_.clear();
    if (!started_) return;
    started_ = false;
    changed_.notify_all();
  }
  pthread_join(thread_, nullptr);
}

void* BackgroundWork::run(void* self) {
  static_cast<BackgroundWork*>(self)->loop();
  return nullptr;
}

void BackgroundWork::loop() {
  // Of this thread alone (Linux). A failure leaves the priority as it is.
  static_cast<void>(nice(kNiceness));
  Job job(*this);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    Item item = std::move(waiting_.front());
    waiting_.pop_front();
    working_ = attached_ = true;
    working_for_ = item.owner;
    stop_item_.store(false, std::memory_order_relaxed);
    lock.unlock();
    item.work(job);
    item.work = nullptr;
    lock.lock();
    working_ = attached_ = false;
    working_for_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace gpurun::emulated
