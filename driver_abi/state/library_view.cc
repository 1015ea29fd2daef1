// Library view: finds the library behind a call by the object files on the stack.
#include "driver_abi/state/library_view.h"

#include <dlfcn.h>
#include <unwind.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "driver_abi/emulated_view.h"

namespace gpurun::driver_abi {
namespace {

constexpr int kFramesMax = 64;

// The addresses of the shared runtimes that have started. More than one is rare, and more than four
// are ignored.
std::array<std::atomic<const void*>, 4> g_started;

bool find_object(const void* address, Dl_info* info) {
  return dladdr(address, info) != 0 && info->dli_fname != nullptr;
}

bool is_shared_runtime(const char* path) {
  const char* slash = std::strrchr(path, '/');
  const char* name = slash == nullptr ? path : slash + 1;
  return std::strncmp(name, "libcudart.so", std::strlen("libcudart.so")) == 0;
}

bool has_started(const void* runtime) {
  for (const auto& started : g_started) {
    if (started.load(std::memory_order_acquire) == runtime) return true;
  }
  return false;
}

struct Walk {
  const void* runtime;  // The object's start.
  bool inside = false;  // The walk has reached the runtime's frames.
  bool library = false;
  int frames = 0;
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* user) {
  auto* walk = static_cast<Walk*>(user);
  if (++walk->frames > kFramesMax) return _URC_END_OF_STACK;
  const auto address = static_cast<std::uintptr_t>(_Unwind_GetIP(context));
  Dl_info info;
  if (!find_object(reinterpret_cast<const void*>(address), &info)) return _URC_END_OF_STACK;
  if (info.dli_fbase == walk->runtime) {
    walk->inside = true;
    return _URC_NO_REASON;
  }
  if (!walk->inside) return _URC_NO_REASON;  // A frame of our own.
  walk->library = chooses_code_by_capability(info.dli_fname);
  return _URC_END_OF_STACK;
}

}  // namespace

bool asked_by_math_library(const void* return_address) noexcept {
  Dl_info info;
  if (!find_object(return_address, &info)) return false;
  if (chooses_code_by_capability(info.dli_fname)) return true;
  if (!is_shared_runtime(info.dli_fname) || !has_started(info.dli_fbase)) return false;
  Walk walk{info.dli_fbase};
  (void)_Unwind_Backtrace(&visit, &walk);
  return walk.library;
}

void note_started_runtime(const void* return_address) noexcept {
  Dl_info info;
  if (!find_object(return_address, &info) || !is_shared_runtime(info.dli_fname)) return;
  if (has_started(info.dli_fbase)) return;
  for (auto& started : g_started) {
    const void* free = nullptr;
    if (started.compare_exchange_strong(free, info.dli_fbase)) return;
  }
}

}  // namespace gpurun::driver_abi
