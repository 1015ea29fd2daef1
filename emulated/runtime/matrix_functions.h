// Matrix instructions: ldmatrix, stmatrix, mma and wmma, for a whole warp or for one lane.
//
// The fragments of mma, ldmatrix and stmatrix have the layouts of the PTX ISA (sections 9.7.14.4
// and 9.7.14.5). PTX leaves the layout of wmma fragments open. Ours takes the elements of the
// matrix row by row and gives each lane in turn as many as its registers hold. When lanes are left,
// it starts again with the first element.
#pragma once

#include <cstdint>
#include <span>

#include "emulated/runtime/matrix_formats.h"
#include "emulated/runtime/native_functions.h"

namespace gpurun::emulated {

// One multiplication, as a constant in translated code.
struct MatrixShape {
  std::uint8_t m = 0;
  std::uint8_t n = 0;
  std::uint16_t k = 0;
  MatrixFormat a{};
  MatrixFormat b{};
  // Formats of C and D, which may differ only in the width of floats.
  MatrixFormat c{};
  MatrixFormat d{};
  bool wmma = false;       // Fragments in wmma's layout.
  bool saturate = false;   // .satfinite of integers
  bool exclusive = false;  // b1: .xor instead of .and

  std::uint64_t packed() const;
  static MatrixShape unpacked(std::uint64_t word);
  // 32-bit registers of a fragment: 'a', 'b', 'c' or 'd'.
  unsigned words(char fragment) const;
};

enum class MatrixOrder : std::uint32_t { kRow, kColumn };

// WarpFunctions. Every lane must be present. Absent lanes count as zeros.
//   gpurun_warp_mma        in: shape (2 words), A, B, C    out: D.
//   gpurun_warp_ldmatrix   in: count | transposed << 8, address (2 words)   out: up to 4 words.
//   gpurun_warp_movmatrix  in: one word        out: one word of the transposed matrix.
//   gpurun_warp_stmatrix   in: as ldmatrix, then up to 4 words.
// Functions for one lane. `fragment` is 'a', 'b', 'c' or 'd'. `stride` counts elements.
//   void gpurun_wmma_load(const void* from, u32 stride, u32 order, u64 shape, u32 fragment,
//                         u32 lane, u32* words)
//   void gpurun_wmma_store(void* to, ...)
std::span<const NativeFunction> matrix_functions();

}  // namespace gpurun::emulated
