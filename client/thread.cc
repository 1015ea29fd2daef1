// Starts a thread with all signals blocked, and a small stack.
#include "client/thread.h"

#include <signal.h>

#include <cstddef>
#include <string>

namespace gpurun::client {
namespace {
// Our threads keep no large objects on their stacks; the rest is room for the log's 4 KiB lines
// and the C library.
constexpr std::size_t kStackBytes = std::size_t{256} << 10;
}  // namespace

Status Thread::start(const char* name, void* (*body)(void*), void* argument) noexcept {
  pthread_attr_t attributes;
  if (const int error = pthread_attr_init(&attributes); error != 0) {
    return Status(Code::kResourceExhausted, "no attributes for a thread");
  }
  pthread_attr_setstacksize(&attributes, kStackBytes);
  sigset_t every;
  sigset_t before;
  sigfillset(&every);
  pthread_sigmask(SIG_BLOCK, &every, &before);  // The new thread inherits it.
  const int error = pthread_create(&thread_, &attributes, body, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    return Status(Code::kResourceExhausted, std::string("cannot start the thread ") + name +
                                                " (error " + std::to_string(error) + ")");
  }
  pthread_setname_np(thread_, name);
  started_ = true;
  return {};
}

void Thread::join() noexcept {
  if (!started_) return;
  pthread_join(thread_, nullptr);
  started_ = false;
}

}  // namespace gpurun::client
