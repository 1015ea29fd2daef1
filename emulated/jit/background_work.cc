// A queue and its thread, which takes no signals.
#include "emulated/jit/background_work.h"

#include <signal.h>

#include <algorithm>
#include <utility>

namespace gpurun::emulated {

namespace {

constexpr std::size_t kStackBytes = std::size_t{64} << 20;  // As compiler.cc's threads.

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

bool BackgroundWork::add(const void* owner, std::function<void()> work) {
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
  if (process_ != getpid()) return;
  changed_.wait(lock, [this, owner] { return !working_ || working_for_ != owner; });
}

void BackgroundWork::stop() {
  if (process_ != 0 && process_ != getpid()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
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
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    Item item = std::move(waiting_.front());
    waiting_.pop_front();
    working_ = true;
    working_for_ = item.owner;
    lock.unlock();
    item.work();
    item.work = nullptr;
    lock.lock();
    working_ = false;
    changed_.notify_all();
  }
}

}  // namespace gpurun::emulated
