// Wide atomics: cmpxchg16b, and the table of locks.
#include "emulated/runtime/wide_atomics.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gpurun::emulated {
namespace {

// Addresses share locks. So many that threads with other cells rarely meet.
constexpr std::uintptr_t kLocks = 64;

std::atomic_flag& lock_of(const WideWords* cell) {
  static std::atomic_flag locks[kLocks];
  return locks[reinterpret_cast<std::uintptr_t>(cell) / sizeof(WideWords) % kLocks];
}

WideWords compare_and_exchange(WideWords* cell, WideWords expected, WideWords desired) {
  static const bool kInstruction = has_wide_instruction();
  return kInstruction ? wide_cas_by_instruction(cell, expected, desired)
                      : wide_cas_by_lock(cell, expected, desired);
}

void store_words(const WideWords& words, std::uint64_t* to) {
  to[0] = words.low;
  to[1] = words.high;
}

void wide_cas(WideWords* cell, std::uint64_t expected_low, std::uint64_t expected_high,
              std::uint64_t desired_low, std::uint64_t desired_high, std::uint64_t* before) {
  store_words(
      compare_and_exchange(cell, {expected_low, expected_high}, {desired_low, desired_high}),
      before);
}

void wide_exchange(WideWords* cell, std::uint64_t low, std::uint64_t high, std::uint64_t* before) {
  WideWords expected;
  for (;;) {
    const WideWords found = compare_and_exchange(cell, expected, {low, high});
    if (found == expected) break;
    expected = found;
  }
  store_words(expected, before);
}

}  // namespace

#if defined(__x86_64__)

bool has_wide_instruction() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_CMPXCHG16B) != 0;
}

WideWords wide_cas_by_instruction(WideWords* cell, WideWords expected, WideWords desired) {
  asm volatile("lock cmpxchg16b %0"
               : "+m"(*cell), "+a"(expected.low), "+d"(expected.high)
               : "b"(desired.low), "c"(desired.high)
               : "memory", "cc");
  return expected;
}

#else

bool has_wide_instruction() { return false; }

WideWords wide_cas_by_instruction(WideWords* cell, WideWords expected, WideWords desired) {
  return wide_cas_by_lock(cell, expected, desired);
}

#endif

WideWords wide_cas_by_lock(WideWords* cell, WideWords expected, WideWords desired) {
  // A bad address faults here, not while the lock is held. Others may write meanwhile, so every
  // access is atomic.
  static_cast<void>(
      __atomic_load_n(const_cast<volatile const std::uint64_t*>(&cell->low), __ATOMIC_RELAXED));
  std::atomic_flag& lock = lock_of(cell);
  while (lock.test_and_set(std::memory_order_acquire)) {
  }
  const WideWords before{__atomic_load_n(&cell->low, __ATOMIC_RELAXED),
                         __atomic_load_n(&cell->high, __ATOMIC_RELAXED)};
  if (before == expected) {
    __atomic_store_n(&cell->low, desired.low, __ATOMIC_RELAXED);
    __atomic_store_n(&cell->high, desired.high, __ATOMIC_RELAXED);
  }
  lock.clear(std::memory_order_release);
  return before;
}

std::span<const NativeFunction> wide_atomic_functions() {
  static const NativeFunction kWideFunctions[] = {
      {"gpurun_wide_cas", reinterpret_cast<void*>(&wide_cas)},
      {"gpurun_wide_exchange", reinterpret_cast<void*>(&wide_exchange)},
  };
  return kWideFunctions;
}

}  // namespace gpurun::emulated
