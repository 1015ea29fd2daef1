// Runs one PTX kernel as threads and as regions, and compares everything that it leaves in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/emulated/engine/engine.h"

namespace gpurun::emulated {

struct Shape2 {
  Extent grid;
  Extent block;
};

// What a kernel did to its memory, and how it ended.
struct Outcome {
  GridResult result;
  std::vector<std::uint32_t> memory;
};

// The body of `.entry k(.param .u64 out, .param .u32 n)`. The text may use
//   %out (b64): its memory; %n (b32); %x (b32): %tid.x; %i (b32): the thread's number in the grid's
//   x direction; %own (b64): the address of word %i of its memory
//   %r<32> (b32), %w<16> (b64), %f<16> (b32), %p<8> (pred): free
// `shared`: declarations of shared variables.
std::string kernel_text(const std::string& shared, const std::string& body);

// Runs it in one form. Fails the test when that form is not to be had.
Outcome run_as_threads(const std::string& text, const Shape2& shape,
                       const std::vector<std::uint32_t>& memory, std::uint32_t n);
Outcome run_as_regions(const std::string& text, const Shape2& shape,
                       const std::vector<std::uint32_t>& memory, std::uint32_t n,
                       unsigned slice_lanes = kSliceLanes);

// Both, with memory of `words` numbers (i * 2654435761); gives the memory that they must agree on.
std::vector<std::uint32_t> expect_equal(const std::string& text, const Shape2& shape,
                                        std::size_t words, std::uint32_t n);

// Why the kernel has no regions; empty: it has.
std::string refusal_of(const std::string& text);

}  // namespace gpurun::emulated
