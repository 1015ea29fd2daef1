// Sanitizer hooks: they tell AddressSanitizer and ThreadSanitizer about stacks that are switched by
// hand (sanitizer/common_interface_defs.h, sanitizer/tsan_interface.h). Without the sanitizers they
// do nothing.
#pragma once

#include <cstddef>

#ifdef GPURUN_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef GPURUN_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace gpurun::emulated::sanitizers {

// Called before a switch to the stack [bottom, bottom + bytes). `fake_stack` null: the stack that
// is left is never resumed.
inline void start_switch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* bottom,
                         [[maybe_unused]] std::size_t bytes) {
#ifdef GPURUN_ASAN
  __sanitizer_start_switch_fiber(fake_stack, bottom, bytes);
#endif
}

// Called after the switch, on the new stack. Returns the bounds of the stack that was left.
inline void finish_switch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** bottom,
                          [[maybe_unused]] std::size_t* bytes) {
#ifdef GPURUN_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, bottom, bytes);
#endif
}

// Called on the stack [bottom, bottom + bytes) after a signal has moved the thread there. The stack
// that was left is never resumed. Without this call a sanitizer takes the new stack for a broken
// one and does not check it.
inline void moved_to_stack([[maybe_unused]] const void* bottom,
                           [[maybe_unused]] std::size_t bytes) {
#ifdef GPURUN_ASAN
  __sanitizer_start_switch_fiber(nullptr, bottom, bytes);
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

// Called when the frames on this stack have gone without a return.
inline void forget_stack([[maybe_unused]] void* low, [[maybe_unused]] std::size_t bytes) {
#ifdef GPURUN_ASAN
  __asan_unpoison_memory_region(low, bytes);
#endif
}

inline void* current_fiber() {
#ifdef GPURUN_TSAN
  return __tsan_get_current_fiber();
#else
  return nullptr;
#endif
}

inline void* create_fiber() {
#ifdef GPURUN_TSAN
  return __tsan_create_fiber(0);
#else
  return nullptr;
#endif
}

inline void destroy_fiber([[maybe_unused]] void* fiber) {
#ifdef GPURUN_TSAN
  __tsan_destroy_fiber(fiber);
#endif
}

// Called right before the jump.
inline void switch_fiber([[maybe_unused]] void* fiber) {
#ifdef GPURUN_TSAN
  __tsan_switch_to_fiber(fiber, 0);
#endif
}

}  // namespace gpurun::emulated::sanitizers
