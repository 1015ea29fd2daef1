// Loop nests: the work of each measured kernel in plain C++, as a programmer without a GPU would
// write it. Compiled with -O2 for any x86-64 or AArch64 processor, and run on one core.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nests {

void vector_add(const float* a, const float* b, float* c, std::size_t n);
void saxpy(float alpha, const float* x, float* y, std::size_t n);
// c = a * b, n x n, in the loop order that suits caches and vectors.
void multiply(const float* a, const float* b, float* c, std::size_t n);
// One sum for each `width` elements.
void sums(const float* in, float* out, std::size_t n, std::size_t width);
// Inclusive sums within each `width` elements.
void scans(const std::int32_t* in, std::int32_t* out, std::size_t n, std::size_t width);
void histogram(const std::uint8_t* in, std::uint32_t* bins, std::size_t n);

}  // namespace nests
