// NextFunction: the function of the same name behind ours: the C library's, or that of another
// preloaded library.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <type_traits>

// Gives a function of ours the C library's name. Headers of one C library declare such a name as a
// function, those of another as an inline one, so our functions have names of their own.
#define GPURUN_AS(name) __asm__(name) __attribute__((visibility("default")))

namespace gpurun::client {

// Whether a function has failed because the C library has no such file.
inline bool is_missing(int result) { return result < 0 && errno == ENOENT; }

namespace detail {

inline const void* library_of(const void* address) noexcept {
  Dl_info about = {};
  return dladdr(address, &about) == 0 ? nullptr : about.dli_fbase;
}

// A program with a dlsym() of its own passes RTLD_NEXT on, which then means the library behind the
// program. That is this one, and its function would call itself without end.
inline void* find_next(const char* name) noexcept {
  void* const found = dlsym(RTLD_NEXT, name);
  static const char in_this_library = 0;
  if (found == nullptr || library_of(found) != library_of(&in_this_library)) return found;
  void* const c_library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return c_library == nullptr ? nullptr : dlsym(c_library, name);
}

}  // namespace detail

// constinit. Any thread, and a signal handler once the first call has returned.
template <typename Function>
class NextFunction {
 public:
  explicit constexpr NextFunction(const char* name) : name_(name) {}

  // nullptr: this C library does not have it. Leaves errno as it is.
  Function* get() noexcept {
    void* found = function_.load(std::memory_order_acquire);
    if (found == nullptr) {
      const int before = errno;
      found = detail::find_next(name_);
      errno = before;
      function_.store(found, std::memory_order_release);
    }
    return reinterpret_cast<Function*>(found);
  }

  // Not noexcept: open() is a cancellation point, and a cancellation unwinds through here.
  template <typename... Arguments>
  auto operator()(Arguments... arguments) {
    Function* const function = get();
    using Answer = decltype(function(arguments...));
    if (function != nullptr) return function(arguments...);
    errno = ENOSYS;
    if constexpr (std::is_pointer_v<Answer>) {
      return static_cast<Answer>(nullptr);
    } else {
      return static_cast<Answer>(-1);
    }
  }

 private:
  const char* const name_;
  std::atomic<void*> function_{nullptr};
};

}  // namespace gpurun::client
