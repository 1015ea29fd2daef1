// cufft: transforms of one dimension (a power of two, mixed factors, a prime by Bluestein's way,
// batches, real to complex and back) and of two, against the definition computed here.
#include <cufft.h>

#include <complex>

#include "check.h"

namespace {

using Complex = std::complex<double>;
constexpr double kTau = 6.283185307179586;

std::vector<Complex> transform(const std::vector<Complex>& in, int sign) {
  const std::size_t n = in.size();
  std::vector<Complex> out(n);
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t j = 0; j < n; ++j) {
      out[k] += in[j] * std::polar(1.0, sign * kTau * static_cast<double>(k * j % n) /
                                            static_cast<double>(n));
    }
  }
  return out;
}

std::vector<Complex> complex_of(const std::vector<float>& parts) {
  std::vector<Complex> values(parts.size() / 2);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = {parts[2 * i], parts[2 * i + 1]};
  return values;
}

std::vector<double> parts_of(const std::vector<Complex>& values) {
  std::vector<double> parts;
  for (const Complex& value : values) parts.insert(parts.end(), {value.real(), value.imag()});
  return parts;
}

void one_dimension(const char* name, int n, int batch) {
  const std::vector<float> in = some_values(2 * n * batch, n);
  const DeviceArray<float> data(in);
  auto* device = reinterpret_cast<cufftComplex*>(data.get());
  cufftHandle plan = 0;
  MUST(cufftPlan1d(&plan, n, CUFFT_C2C, batch));
  MUST(cufftExecC2C(plan, device, device, CUFFT_FORWARD));
  std::vector<double> right;
  for (int i = 0; i < batch; ++i) {
    const std::vector<float> one(in.begin() + 2 * n * i, in.begin() + 2 * n * (i + 1));
    const std::vector<double> parts = parts_of(transform(complex_of(one), -1));
    right.insert(right.end(), parts.begin(), parts.end());
  }
  expect_close(name, data.read(), right, 2e-5);
  MUST(cufftExecC2C(plan, device, device, CUFFT_INVERSE));  // n times the input.
  for (std::size_t i = 0; i < right.size(); ++i) right[i] = double{in[i]} * n;
  expect_close(name, data.read(), right, 2e-5);
  MUST(cufftDestroy(plan));
}

void two_dimensions(int rows, int columns) {
  const std::vector<float> in = some_values(2 * rows * columns, 7);
  const DeviceArray<float> data(in);
  auto* device = reinterpret_cast<cufftComplex*>(data.get());
  cufftHandle plan = 0;
  MUST(cufftPlan2d(&plan, rows, columns, CUFFT_C2C));
  MUST(cufftExecC2C(plan, device, device, CUFFT_FORWARD));
  std::vector<Complex> right = complex_of(in);
  for (int row = 0; row < rows; ++row) {
    const auto first = right.begin() + row * columns;
    const std::vector<Complex> line = transform({first, first + columns}, -1);
    std::copy(line.begin(), line.end(), first);
  }
  for (int column = 0; column < columns; ++column) {
    std::vector<Complex> line(rows);
    for (int row = 0; row < rows; ++row) line[row] = right[row * columns + column];
    line = transform(line, -1);
    for (int row = 0; row < rows; ++row) right[row * columns + column] = line[row];
  }
  expect_close("2D", data.read(), parts_of(right), 2e-5);
  MUST(cufftDestroy(plan));
}

void real(int n) {
  const std::vector<float> in = some_values(n, 3);
  const DeviceArray<float> from(in), back(n), to(n + 2);
  auto* half = reinterpret_cast<cufftComplex*>(to.get());
  cufftHandle forward = 0, inverse = 0;
  MUST(cufftPlan1d(&forward, n, CUFFT_R2C, 1));
  MUST(cufftPlan1d(&inverse, n, CUFFT_C2R, 1));
  MUST(cufftExecR2C(forward, from.get(), half));
  std::vector<Complex> right = transform({in.begin(), in.end()}, -1);
  right.resize(n / 2 + 1);
  expect_close("real to complex", to.read(), parts_of(right), 2e-5);
  MUST(cufftExecC2R(inverse, half, back.get()));
  std::vector<double> same(in.begin(), in.end());
  for (double& value : same) value *= n;
  expect_close("complex to real", back.read(), same, 2e-5);
}

}  // namespace

int main() {
  one_dimension("1D of 256", 256, 3);
  one_dimension("1D of 360", 360, 1);
  one_dimension("1D of 1009, by Bluestein's way", 1009, 1);
  two_dimensions(32, 48);
  real(512);
  std::printf("PASSED\n");
  return 0;
}
