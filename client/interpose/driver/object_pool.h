// ObjectPool: the objects behind handles. They are reused, never freed. A thread that reads an
// object while another thread ends it reads stale facts, but no freed memory.
#pragma once

#include <pthread.h>

#include <new>

namespace gpurun::client::interpose {

// T has a member `T* next_unused` that only the pool writes. Constant initialization, no
// destructor. Any thread.
template <typename T>
class ObjectPool {
 public:
  // nullptr without memory. The object holds its last owner's values: set every member.
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
