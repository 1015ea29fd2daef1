// The arithmetic of mbarrier objects.
#include "emulated/runtime/mbarrier.h"

#include <cstdint>
#include <cstring>

namespace gpurun::emulated {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

// Ranges as in PTX ISA, section 9.7.13.15.2: counts of 20 bits, bytes of 20 bits and a sign.
constexpr U32 kCountMask = 0xfffff;
constexpr U32 kBytesMask = 0x1fffff;

struct Object {
  U32 pending;   // Arrivals that are still missing in this phase.
  U32 expected;  // Arrivals that a phase takes.
  // Bytes announced and not yet arrived. A 21-bit number that may be negative.
  U32 bytes;
  U32 phase;  // Counts phases modulo 8. Its low bit is the parity.
};

Object unpack(U64 word) {
  return {static_cast<U32>(word) & kCountMask, static_cast<U32>(word >> 20) & kCountMask,
          static_cast<U32>(word >> 40) & kBytesMask, static_cast<U32>(word >> 61)};
}

Object load(const U64* address) {
  U64 word = 0;
  std::memcpy(&word, address, sizeof word);
  return unpack(word);
}

U64 pack(const Object& object) {
  return U64{object.pending & kCountMask} | U64{object.expected & kCountMask} << 20 |
         U64{object.bytes & kBytesMask} << 40 | U64{object.phase & 7} << 61;
}

void store(U64* address, Object object) {
  if (object.pending == 0 && (object.bytes & kBytesMask) == 0) {
    ++object.phase;
    object.pending = object.expected;
  }
  const U64 word = pack(object);
  std::memcpy(address, &word, sizeof word);
}

void init(U64* address, U32 count) { store(address, {count, count, 0, 0}); }

// PTX leaves more arrivals than are missing undefined. Here the phase ends.
U64 arrive_with(U64* address, U32 count, U32 bytes, U32 dropped) {
  Object object = load(address);
  const U64 before = pack(object);
  object.bytes += bytes;
  object.expected = object.expected > dropped ? object.expected - dropped : 0;
  object.pending = object.pending > count ? object.pending - count : 0;
  store(address, object);
  return before;
}

U64 arrive(U64* address, U32 count, U32 bytes) { return arrive_with(address, count, bytes, 0); }
U64 arrive_drop(U64* address, U32 count, U32 bytes) {
  return arrive_with(address, count, bytes, count);
}

void expect_tx(U64* address, U32 bytes) {
  Object object = load(address);
  object.bytes += bytes;
  store(address, object);
}
void complete_tx(U64* address, U32 bytes) { expect_tx(address, 0 - bytes); }

U32 test(const U64* address, U64 state) { return load(address).phase != unpack(state).phase; }
U32 test_parity(const U64* address, U32 parity) {
  return (load(address).phase & 1) != (parity & 1) ? 1 : 0;
}
U32 pending_count(U64 state) { return unpack(state).pending; }

template <class F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

std::span<const NativeFunction> mbarrier_functions() {
  static const NativeFunction kFunctions[] = {
      {"gpurun_mbarrier_init", address_of(&init)},
      {"gpurun_mbarrier_arrive", address_of(&arrive)},
      {"gpurun_mbarrier_arrive_drop", address_of(&arrive_drop)},
      {"gpurun_mbarrier_expect_tx", address_of(&expect_tx)},
      {"gpurun_mbarrier_complete_tx", address_of(&complete_tx)},
      {"gpurun_mbarrier_test", address_of(&test)},
      {"gpurun_mbarrier_test_parity", address_of(&test_parity)},
      {"gpurun_mbarrier_pending_count", address_of(&pending_count)},
  };
  return kFunctions;
}

}  // namespace gpurun::emulated
