// Thread: starts with all signals blocked and a small stack.
#include "client/process/thread.h"

#include <link.h>
#include <signal.h>

#include <cstddef>
#include <string>

namespace gpurun::client {
namespace {
// Our threads keep no large objects on their stacks. The rest is room for the log's 4 KiB lines and
// the C library.
constexpr std::size_t kStackBytes = std::size_t{256} << 10;

// glibc takes a thread's copy of all thread-local variables from its stack, and some programs have
// megabytes of them. Without this room pthread_create() fails with EINVAL, or little of the stack
// is left. The sum also counts libraries that were opened later. Their variables come from
// elsewhere, so that costs address space only. Do not use __pthread_get_minstack(): it is found by
// dlsym() only. A thread that loads a library holds dlsym()'s lock while it waits for us.
std::size_t thread_storage_bytes() {
  std::size_t bytes = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* sum) {
        for (int i = 0; i < library->dlpi_phnum; ++i) {
          const auto& header = library->dlpi_phdr[i];
          if (header.p_type == PT_TLS) {
            *static_cast<std::size_t*>(sum) += header.p_memsz + header.p_align;
          }
        }
        return 0;
      },
      &bytes);
  return bytes;
}
}  // namespace

Status Thread::start(const char* name, void* (*body)(void*), void* argument) noexcept {
  pthread_attr_t attributes;
  if (const int error = pthread_attr_init(&attributes); error != 0) {
    return Status(Code::kResourceExhausted, "no attributes for a thread");
  }
  constexpr std::size_t kPage = 4096;
  const std::size_t stack = kStackBytes + thread_storage_bytes();
  pthread_attr_setstacksize(&attributes, (stack + kPage - 1) / kPage * kPage);
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

void Thread::leave_alone() noexcept {
  if (started_) pthread_detach(thread_);
  started_ = false;
}

void Thread::join() noexcept {
  if (!started_) return;
  pthread_join(thread_, nullptr);
  started_ = false;
}

}  // namespace gpurun::client
