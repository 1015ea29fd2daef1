// Loop nests: plain loops without manual optimisation.
#include "loop_nests.h"

namespace nests {

void vector_add(const float* a, const float* b, float* c, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) c[i] = a[i] + b[i];
}

void saxpy(float alpha, const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) y[i] = alpha * x[i] + y[i];
}

void multiply(const float* a, const float* b, float* c, std::size_t n) {
  for (std::size_t row = 0; row < n; ++row) {
    float* const out = c + row * n;
    for (std::size_t column = 0; column < n; ++column) out[column] = 0;
    for (std::size_t k = 0; k < n; ++k) {
      const float factor = a[row * n + k];
      for (std::size_t column = 0; column < n; ++column) out[column] += factor * b[k * n + column];
    }
  }
}

void sums(const float* in, float* out, std::size_t n, std::size_t width) {
  for (std::size_t first = 0; first < n; first += width) {
    float sum = 0;
    for (std::size_t i = first; i < first + width; ++i) sum += in[i];
    out[first / width] = sum;
  }
}

void scans(const std::int32_t* in, std::int32_t* out, std::size_t n, std::size_t width) {
  for (std::size_t first = 0; first < n; first += width) {
    std::int32_t sum = 0;
    for (std::size_t i = first; i < first + width; ++i) out[i] = sum += in[i];
  }
}

void histogram(const std::uint8_t* in, std::uint32_t* bins, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) ++bins[in[i]];
}

}  // namespace nests
