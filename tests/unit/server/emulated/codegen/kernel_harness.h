// Runs PTX kernels as one CUDA thread, to compare instructions with host arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace gpurun::emulated {

// Compiles the module's first .entry and runs it once; parameter 0 is the address of `in`,
// parameter 1 that of `out`.
Status run_kernel(const std::string& text, const void* in, void* out);

// One instruction and what it must give. Sources are %a, %b, %c with the width in bits: the
// operands' low bits. Results are compared in `result_bits`.
struct InstructionCase {
  std::string name;  // "add.u32"
  unsigned result_bits;
  std::vector<unsigned> source_bits;
  std::string tail;  // Further operands: ", 0xe8".
  std::function<std::uint64_t(std::uint64_t a, std::uint64_t b, std::uint64_t c)> expected;
};

struct Inputs {
  std::uint64_t a, b, c;
};

// Executes every case with every input and reports each difference as a test failure.
void check_instructions(std::span<const InstructionCase> cases, std::span<const Inputs> inputs);

}  // namespace gpurun::emulated
