// Wide atomics: atomic operations on 16 bytes of memory (PTX ISA, atom.b128, ld.b128, st.b128).
//
// They use the processor's own instructions, so that processes with common memory agree. Where the
// processor has none, a table of locks makes them atomic among the threads of this process.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "emulated/runtime/native_functions.h"

namespace gpurun::emulated {

struct alignas(16) WideWords {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const WideWords&) const = default;
};

// Functions for compiled code, with C signatures. `cell` is 16-aligned, else the access faults.
//
//   void gpurun_wide_cas(WideWords*, u64 expected[2], u64 desired[2], u64* before)
//   void gpurun_wide_exchange(WideWords*, u64 desired[2], u64* before)
//   void gpurun_wide_load(const WideWords*, u64* words)
//
// The compiled code passes both words of a pair as values, the low one first.
std::span<const NativeFunction> wide_atomic_functions();

// The two ways to compare and exchange. They return the words before.
bool has_wide_instruction();
WideWords wide_cas_by_instruction(WideWords* cell, WideWords expected, WideWords desired);
WideWords wide_cas_by_lock(WideWords* cell, WideWords expected, WideWords desired);

// The two ways to load. A processor with AVX needs no right to write there. One without AVX
// compares and exchanges.
WideWords wide_load_by_instruction(const WideWords* cell);
WideWords wide_load_by_lock(const WideWords* cell);

}  // namespace gpurun::emulated
