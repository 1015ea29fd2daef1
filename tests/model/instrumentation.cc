// Instrumentation: the functions that code compiled with -fsanitize=thread calls (the interface of
// ThreadSanitizer's runtime: LLVM, compiler-rt, lib/tsan/rtl/tsan_interface.h and
// tsan_interface_atomic.h).
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/model/atomics.h"
#include "tests/model/runtime.h"

using gpurun::model::Order;
namespace model = gpurun::model;

namespace {

void access(const void* address, std::size_t bytes, bool write, const void* pc) {
  if (!model::memory_seen()) return;
  const model::Inside inside;
  if (!write && bytes == 8 && model::is_compared(address)) return;
  model::note_access(address, bytes, write, model::Kind::kPlain, pc);
}

bool is_compared(const volatile void* address, std::size_t bytes) {
  if (bytes != 8 || !model::memory_seen()) return false;
  const model::Inside inside;
  return model::is_compared(const_cast<const void*>(address));
}

// A word of compared memory, of which other threads may write other bytes at the same time. The
// exchange writes the bytes that it changes, and no others.
std::uint64_t exchange_bytes(volatile void* at, std::uint64_t expected, std::uint64_t desired,
                             int order, const void* pc) {
  std::uint64_t old = 0;
  std::memcpy(&old, const_cast<const void*>(at), sizeof old);
  if (old != expected) return old;
  for (std::size_t i = 0; i < sizeof old; ++i) {
    const auto value = static_cast<std::uint8_t>(desired >> (8 * i));
    if (value == static_cast<std::uint8_t>(old >> (8 * i))) continue;
    auto* const byte = static_cast<std::uint8_t*>(const_cast<void*>(at)) + i;
    model::atomic_store(byte, 1, value, Order{order}, pc);
  }
  return old;
}

}  // namespace

#define PC __builtin_return_address(0)
#define PLAIN(bytes)                                                            \
  void __tsan_read##bytes(void* at) { access(at, bytes, false, PC); }           \
  void __tsan_write##bytes(void* at) { access(at, bytes, true, PC); }           \
  void __tsan_unaligned_read##bytes(void* at) { access(at, bytes, false, PC); } \
  void __tsan_unaligned_write##bytes(void* at) { access(at, bytes, true, PC); } \
  void __tsan_volatile_read##bytes(void* at) { access(at, bytes, false, PC); }  \
  void __tsan_volatile_write##bytes(void* at) { access(at, bytes, true, PC); }

#define UPDATE(bits, type, name, expression)                                          \
  type __tsan_atomic##bits##_##name(volatile type* at, type operand, int order) {     \
    std::uint64_t old = 0;                                                            \
    model::atomic_update(const_cast<type*>(at), sizeof(type), Order{order}, PC, &old, \
                         [operand](std::uint64_t before, std::uint64_t* next) {       \
                           const type value = static_cast<type>(before);              \
                           static_cast<void>(value);                                  \
                           *next = static_cast<type>(expression);                     \
                           return true;                                               \
                         });                                                          \
    return static_cast<type>(old);                                                    \
  }

#define EXCHANGE(bits, type, name)                                                             \
  int __tsan_atomic##bits##_##name(volatile type* at, type* expected, type desired, int order, \
                                   int) {                                                      \
    std::uint64_t old = 0;                                                                     \
    const bool done =                                                                          \
        model::atomic_update(const_cast<type*>(at), sizeof(type), Order{order}, PC, &old,      \
                             [expected, desired](std::uint64_t before, std::uint64_t* next) {  \
                               *next = desired;                                                \
                               return static_cast<type>(before) == *expected;                  \
                             });                                                               \
    if (!done) *expected = static_cast<type>(old);                                             \
    return done ? 1 : 0;                                                                       \
  }

// clang's form: the returned old value shows whether the exchange happened.
#define EXCHANGE_VALUE(bits, type)                                                                \
  type __tsan_atomic##bits##_compare_exchange_val(volatile type* at, type expected, type desired, \
                                                  int order, int) {                               \
    if (is_compared(at, sizeof(type))) {                                                          \
      return static_cast<type>(exchange_bytes(at, expected, desired, order, PC));                 \
    }                                                                                             \
    std::uint64_t old = 0;                                                                        \
    model::atomic_update(const_cast<type*>(at), sizeof(type), Order{order}, PC, &old,             \
                         [expected, desired](std::uint64_t before, std::uint64_t* next) {         \
                           *next = desired;                                                       \
                           return static_cast<type>(before) == expected;                          \
                         });                                                                      \
    return static_cast<type>(old);                                                                \
  }

#define ATOMIC(bits, type)                                                                \
  type __tsan_atomic##bits##_load(const volatile type* at, int order) {                   \
    if (is_compared(at, sizeof(type))) return *at;                                        \
    return static_cast<type>(                                                             \
        model::atomic_load(const_cast<const type*>(at), sizeof(type), Order{order}, PC)); \
  }                                                                                       \
  void __tsan_atomic##bits##_store(volatile type* at, type value, int order) {            \
    model::atomic_store(const_cast<type*>(at), sizeof(type), value, Order{order}, PC);    \
  }                                                                                       \
  UPDATE(bits, type, exchange, operand)                                                   \
  UPDATE(bits, type, fetch_add, value + operand)                                          \
  UPDATE(bits, type, fetch_sub, value - operand)                                          \
  UPDATE(bits, type, fetch_and, value& operand)                                           \
  UPDATE(bits, type, fetch_or, value | operand)                                           \
  UPDATE(bits, type, fetch_xor, value ^ operand)                                          \
  UPDATE(bits, type, fetch_nand, ~(value & operand))                                      \
  EXCHANGE(bits, type, compare_exchange_strong)                                           \
  EXCHANGE(bits, type, compare_exchange_weak)                                             \
  EXCHANGE_VALUE(bits, type)

#pragma GCC diagnostic ignored "-Wconversion"
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void* caller) {
  if (model::world.exploring && model::seen()) model::world.current->calls.push_back(caller);
}
void __tsan_func_exit() {
  if (model::seen() && !model::world.current->calls.empty()) model::world.current->calls.pop_back();
}
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
void __tsan_read_range(void* at, std::size_t bytes) { access(at, bytes, false, PC); }
void __tsan_write_range(void* at, std::size_t bytes) { access(at, bytes, true, PC); }
void __tsan_vptr_update(void** at, void*) { access(at, sizeof *at, true, PC); }
void __tsan_vptr_read(void** at) { access(at, sizeof *at, false, PC); }

ATOMIC(8, std::uint8_t)
ATOMIC(16, std::uint16_t)
ATOMIC(32, std::uint32_t)
ATOMIC(64, std::uint64_t)
void __tsan_atomic_thread_fence(int order) { model::fence(Order{order}); }
void __tsan_atomic_signal_fence(int) {}

// The compiler does not instrument calls of these. The linker redirects them here (--wrap).
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  access(from, bytes, false, PC);
  access(to, bytes, true, PC);
  return __real_memcpy(to, from, bytes);
}
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  access(from, bytes, false, PC);
  access(to, bytes, true, PC);
  return __real_memmove(to, from, bytes);
}
void* __wrap_memset(void* to, int value, std::size_t bytes) {
  access(to, bytes, true, PC);
  return __real_memset(to, value, bytes);
}

// clang's names for copies that are not calls in the source.
void* __tsan_memcpy(void*, const void*, std::size_t) __attribute__((alias("__wrap_memcpy")));
void* __tsan_memmove(void*, const void*, std::size_t) __attribute__((alias("__wrap_memmove")));
void* __tsan_memset(void*, int, std::size_t) __attribute__((alias("__wrap_memset")));

}  // extern "C"
