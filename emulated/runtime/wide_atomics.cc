// Wide atomics: cmpxchg16b, movdqa, and the table of locks.
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

void take(std::atomic_flag& lock) {
  while (lock.test_and_set(std::memory_order_acquire)) {
  }
}

WideWords read_words(const WideWords* cell) {
  return {__atomic_load_n(&cell->low, __ATOMIC_RELAXED),
          __atomic_load_n(&cell->high, __ATOMIC_RELAXED)};
}

// A bad address faults here, not while a lock is held.
void touch(const WideWords* cell) {
  static_cast<void>(
      __atomic_load_n(const_cast<volatile const std::uint64_t*>(&cell->low), __ATOMIC_RELAXED));
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

void wide_load(const WideWords* cell, std::uint64_t* words) {
  static const bool kInstruction = has_wide_instruction();
  store_words(kInstruction ? wide_load_by_instruction(cell) : wide_load_by_lock(cell), words);
}

}  // namespace

#if defined(__x86_64__)

namespace {

// Such a processor accesses 16 aligned bytes atomically (Intel SDM, volume 3A, "Guaranteed Atomic
// Operations", and AMD's manual, volume 2, "Access Atomicity").
bool has_avx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_AVX) != 0;
}

}  // namespace

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

WideWords wide_load_by_instruction(const WideWords* cell) {
  static const bool kAvx = has_avx();
  if (!kAvx) return wide_cas_by_instruction(const_cast<WideWords*>(cell), {}, {});
  WideWords words;
  asm volatile(
      "movdqa %1, %%xmm0\n\t"
      "movdqa %%xmm0, %0"
      : "=m"(words)
      : "m"(*cell)
      : "xmm0", "memory");
  return words;
}

#else

bool has_wide_instruction() { return false; }

WideWords wide_cas_by_instruction(WideWords* cell, WideWords expected, WideWords desired) {
  return wide_cas_by_lock(cell, expected, desired);
}

WideWords wide_load_by_instruction(const WideWords* cell) { return wide_load_by_lock(cell); }

#endif

// Compiled code may access parts of the cell meanwhile, so every access is atomic.
WideWords wide_cas_by_lock(WideWords* cell, WideWords expected, WideWords desired) {
  touch(cell);
  std::atomic_flag& lock = lock_of(cell);
  take(lock);
  const WideWords before = read_words(cell);
  if (before == expected) {
    __atomic_store_n(&cell->low, desired.low, __ATOMIC_RELAXED);
    __atomic_store_n(&cell->high, desired.high, __ATOMIC_RELAXED);
  }
  lock.clear(std::memory_order_release);
  return before;
}

WideWords wide_load_by_lock(const WideWords* cell) {
  touch(cell);
  std::atomic_flag& lock = lock_of(cell);
  take(lock);
  const WideWords words = read_words(cell);
  lock.clear(std::memory_order_release);
  return words;
}

std::span<const NativeFunction> wide_atomic_functions() {
  static const NativeFunction kWideFunctions[] = {
      {"gpurun_wide_cas", reinterpret_cast<void*>(&wide_cas)},
      {"gpurun_wide_exchange", reinterpret_cast<void*>(&wide_exchange)},
      {"gpurun_wide_load", reinterpret_cast<void*>(&wide_load)},
  };
  return kWideFunctions;
}

}  // namespace gpurun::emulated
