// Kernel harness: runs PTX kernels as one CUDA thread, to compare instructions with host
// arithmetic.
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

// Compiles the module's first .entry and runs it once. Parameter 0 is the address of `in`,
// parameter 1 that of `out`.
Status run_kernel(const std::string& text, const void* in, void* out);

// One instruction and its expected result. The sources are %a, %b and %c with a width in bits,
// which takes the operands' low bits. Width 1 is a predicate, the lowest bit. Results are compared
// in `result_bits`, where 1 is a predicate and 2 is the pair p|q, with p lowest. If the expected
// result is not a number in `result_type`, any such result is accepted.
struct InstructionCase {
  std::string name;  // "add.u32"
  unsigned result_bits;
  std::vector<unsigned> source_bits;
  std::string tail;  // Further operands: ", 0xe8".
  std::function<std::uint64_t(std::uint64_t a, std::uint64_t b, std::uint64_t c)> expected;
  std::string result_type = {};  // A float type: "f32", "f16x2".
  double tolerance = 0;          // difference| / max(|expected|, floor). 0: equal bits.
  double floor = 0;
};

struct Inputs {
  std::uint64_t a, b, c;
};

// The code of one thread of a grid, and its expected results. The text may use:
// - %a16 %a32 %a64, and the same with b and c: the thread's inputs, cut to that width.
// - %i (b32): the thread's number in the block.
// - %cell (b64): its own 16 bytes of global memory, zero at first.
// - %own (b32): its own 16 bytes of shared memory.
// - %all (b32): 64 bytes of shared memory of the block, zero at first.
// - %p, %q (pred), %t<8> (b32), %u<8> (b64), %v<8> (b16): free.
// It leaves up to two results in %d<bits> and %e<bits>.
struct ThreadCase {
  std::string text;
  unsigned result_bits;  // 16, 32 or 64
  std::function<std::pair<std::uint64_t, std::uint64_t>(unsigned thread)> expected;
};

// Runs every case in one block of the emulated device's engine, one thread for each of `inputs`,
// and reports each difference as a test failure.
void check_threads(std::span<const ThreadCase> cases, std::span<const Inputs> inputs);

// The number of kernels that have run in each form so far. GPURUN_TEST_TIER=regions asks for
// regions.
struct TierCounts {
  int threads = 0;
  int regions = 0;
};
TierCounts& tier_counts();

struct GridShape {
  unsigned blocks = 1;
  unsigned threads = 32;
};
// As run_kernel(), on the engine.
Status run_grid(const std::string& text, GridShape shape, const void* in, void* out);

// The variants (variant_key of variant_table.h) in all texts that ran so far. The test that wrote
// such a text compares every result of it.
const std::set<std::string>& recorded_variants();
// Records the variants of a text that ran by other means.
void record_text(const std::string& text);

// Executes every case with every input and reports each difference as a test failure.
void check_instructions(std::span<const InstructionCase> cases, std::span<const Inputs> inputs);

}  // namespace gpurun::emulated
