// PublishedOnce: a value that the first caller of get() builds and that lives until the process
// ends.
//
// It replaces a function's static variable in code that a forked child may run. The compiler guards
// such a variable with a lock. A child waits forever for a lock that another thread of its parent
// held. PublishedOnce has no lock. Threads that call get() at once may each build a value, and all
// but one are discarded.
#pragma once

#include <atomic>
#include <memory>

namespace gpurun {

template <typename T>
class PublishedOnce {
 public:
  constexpr PublishedOnce() = default;
  PublishedOnce(const PublishedOnce&) = delete;
  PublishedOnce& operator=(const PublishedOnce&) = delete;

  // `build` returns a T. Its exceptions reach the caller, and the next call builds again. Any
  // thread, also in a forked child.
  template <typename Build>
  const T& get(Build build) {
    if (const T* value = value_.load(std::memory_order_acquire); value != nullptr) return *value;
    auto built = std::make_unique<const T>(build());
    const T* published = nullptr;
    if (value_.compare_exchange_strong(published, built.get(), std::memory_order_acq_rel)) {
      published = built.release();
    }
    return *published;
  }

 private:
  std::atomic<const T*> value_{nullptr};
};

}  // namespace gpurun
