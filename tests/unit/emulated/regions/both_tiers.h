// Both tiers: runs one PTX kernel as threads and as regions, and compares all memory that it
// leaves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "emulated/engine/engine.h"

namespace gpurun::emulated {

struct Shape2 {
  Extent grid;
  Extent block;
};

// The memory after a kernel, and the result of its grid.
struct Outcome {
  GridResult result;
  std::vector<std::uint32_t> memory;
};

// The text of `.entry k(.param .u64 out, .param .u32 n)` with that body. `shared` declares shared
// variables. The body may use:
// - %out (b64): the kernel's memory.
// - %n (b32): the parameter, and %x (b32): %tid.x.
// - %i (b32): the thread's number in the grid's x direction.
// - %own (b64): the address of word %i of the kernel's memory.
// - %r<32> (b32), %w<16> (b64), %f<16> (b32), %p<8> (pred): free.
std::string kernel_text(const std::string& shared, const std::string& body);

// Runs the kernel in one form. Fails the test when it has no such form.
Outcome run_as_threads(const std::string& text, const Shape2& shape,
                       const std::vector<std::uint32_t>& memory, std::uint32_t n);
Outcome run_as_regions(const std::string& text, const Shape2& shape,
                       const std::vector<std::uint32_t>& memory, std::uint32_t n,
                       unsigned slice_lanes = kSliceLanes);

// Runs it in both forms, with memory of `words` numbers (i * 2654435761). Returns the memory, which
// must be equal in both.
std::vector<std::uint32_t> expect_equal(const std::string& text, const Shape2& shape,
                                        std::size_t words, std::uint32_t n);

// The reason why the kernel has no regions. Empty: it has them.
std::string refusal_of(const std::string& text);

}  // namespace gpurun::emulated
