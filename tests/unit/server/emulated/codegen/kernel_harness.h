// Runs PTX kernels as one CUDA thread, to compare instructions with host arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace gpurun::emulated {

// Compiles the module's first .entry and runs it once; parameter 0 is the address of `in`,
// parameter 1 that of `out`.
Status run_kernel(const std::string& text, const void* in, void* out);

// One instruction and what it must give. Sources are %a, %b, %c with the width in bits: the
// operands' low bits; width 1 is a predicate, the lowest bit. Results are compared in
// `result_bits`, where 1 is a predicate and 2 are the two of p|q, p lowest; where a result that is
// not a number in `result_type` is expected, any such result will do.
struct InstructionCase {
  std::string name;  // "add.u32"
  unsigned result_bits;
  std::vector<unsigned> source_bits;
  std::string tail;  // Further operands: ", 0xe8".
  std::function<std::uint64_t(std::uint64_t a, std::uint64_t b, std::uint64_t c)> expected;
  std::string result_type = {};  // A float type: "f32", "f16x2".
  double tolerance = 0;          // |difference| / max(|expected|, floor); 0: equal bits.
  double floor = 0;
};

struct Inputs {
  std::uint64_t a, b, c;
};

// What one thread of a grid does, and what must come out. The text may use
//   %a16 %a32 %a64, the same with b and c: the thread's inputs, cut to that width
//   %i (b32): its number in the block; %cell (b64): 16 bytes of global memory of its own, zero at
//   first; %own (b32): 16 bytes of shared memory of its own; %all (b32): 64 bytes of shared memory
//   of the block, zero at first
//   %p, %q (pred), %t<8> (b32), %u<8> (b64), %v<8> (b16): free
// and leaves up to two results in %d<bits> and %e<bits>.
struct ThreadCase {
  std::string text;
  unsigned result_bits;  // 16, 32 or 64
  std::function<std::pair<std::uint64_t, std::uint64_t>(unsigned thread)> expected;
};

// Runs every case in one block of the emulated device's engine, one thread for each of `inputs`,
// and reports each difference as a test failure.
void check_threads(std::span<const ThreadCase> cases, std::span<const Inputs> inputs);

// How many kernels have run in which form so far. GPURUN_TEST_TIER=regions asks for regions.
struct TierCounts {
  int threads = 0;
  int regions = 0;
};
TierCounts& tier_counts();

struct GridShape {
  unsigned blocks = 1;
  unsigned threads = 32;
};
// As run_kernel, on the engine.
Status run_grid(const std::string& text, GridShape shape, const void* in, void* out);

// The variants (variant_key of variant_table.h) in all texts that ran so far: every result of such
// a text is compared by the test that wrote it.
const std::set<std::string>& recorded_variants();
// All of one text, run by other means.
void record_text(const std::string& text);

// Executes every case with every input and reports each difference as a test failure.
void check_instructions(std::span<const InstructionCase> cases, std::span<const Inputs> inputs);

}  // namespace gpurun::emulated
