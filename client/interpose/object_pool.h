// ObjectPool: the objects behind handles. They are never freed but used again, so that a thread
// which looks at one that another thread ends reads stale facts and nothing worse.
#pragma once

#include <pthread.h>

#include <new>

namespace gpurun::client::interpose {

// T has a member `T* next_unused` that nobody else writes. Constant initialization, no destructor.
// Any thread.
template <typename T>
class ObjectPool {
 public:
  // nullptr without memory. What the object holds is its last owner's: set every member.
  T* take() noexcept {
    pthread_mutex_lock(&mutex_);
    T* object = unused_;
    if (object != nullptr) unused_ = object->next_unused;
    pthread_mutex_unlock(&mutex_);
    return object != nullptr ? object : new (std::nothrow) T;
  }
  void give_back(T* object) noexcept {
    pthread_mutex_lock(&mutex_);
    object->next_unused = unused_;
    unused_ = object;
    pthread_mutex_unlock(&mutex_);
  }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  T* unused_ = nullptr;
};

}  // namespace gpurun::client::interpose
