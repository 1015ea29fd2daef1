// cusolver: linear equations by getrf and getrs, and eigenvalues and vectors of a symmetric matrix
// by syevd. Each result is checked in its equation.
#include <cusolverDn.h>

#include "check.h"

namespace {

constexpr int kN = 48;

void solve(cusolverDnHandle_t handle) {
  std::vector<double> a(kN * kN), x(kN), b(kN);
  const std::vector<float> values = some_values(kN * kN + kN, 5);
  for (int i = 0; i < kN * kN; ++i) a[i] = values[i] + (i % (kN + 1) == 0 ? 4 : 0);
  for (int i = 0; i < kN; ++i) x[i] = values[kN * kN + i];
  for (int row = 0; row < kN; ++row) {
    for (int column = 0; column < kN; ++column) b[row] += a[column * kN + row] * x[column];
  }
  const DeviceArray<double> device_a(a), device_b(b);
  const DeviceArray<int> pivots(kN), info(1);
  int count = 0;
  MUST(cusolverDnDgetrf_bufferSize(handle, kN, kN, device_a.get(), kN, &count));
  const DeviceArray<double> work(count);
  MUST(cusolverDnDgetrf(handle, kN, kN, device_a.get(), kN, work.get(), pivots.get(), info.get()));
  MUST(info.read()[0]);
  MUST(cusolverDnDgetrs(handle, CUBLAS_OP_N, kN, 1, device_a.get(), kN, pivots.get(),
                        device_b.get(), kN, info.get()));
  MUST(info.read()[0]);
  expect_close("getrf, getrs", device_b.read(), x, 1e-11);
}

void eigenvalues(cusolverDnHandle_t handle) {
  std::vector<double> a(kN * kN);
  const std::vector<float> values = some_values(kN * kN, 6);
  for (int i = 0; i < kN; ++i) {
    for (int j = 0; j < kN; ++j) a[i * kN + j] = double{values[i * kN + j]} + values[j * kN + i];
  }
  const DeviceArray<double> device_a(a), device_values(kN);
  const DeviceArray<int> info(1);
  const cusolverEigMode_t mode = CUSOLVER_EIG_MODE_VECTOR;
  int count = 0;
  MUST(cusolverDnDsyevd_bufferSize(handle, mode, CUBLAS_FILL_MODE_LOWER, kN, device_a.get(), kN,
                                   device_values.get(), &count));
  const DeviceArray<double> work(count);
  MUST(cusolverDnDsyevd(handle, mode, CUBLAS_FILL_MODE_LOWER, kN, device_a.get(), kN,
                        device_values.get(), work.get(), count, info.get()));
  MUST(info.read()[0]);
  const std::vector<double> vectors = device_a.read(), found = device_values.read();
  std::vector<double> left(kN * kN), right(kN * kN);
  for (int v = 0; v < kN; ++v) {
    for (int row = 0; row < kN; ++row) {
      for (int k = 0; k < kN; ++k) left[v * kN + row] += a[k * kN + row] * vectors[v * kN + k];
      right[v * kN + row] = found[v] * vectors[v * kN + row];
    }
    double length = 0;
    for (int k = 0; k < kN; ++k) length += vectors[v * kN + k] * vectors[v * kN + k];
    if (std::fabs(length - 1) > 1e-10 || (v > 0 && found[v] < found[v - 1])) {
      std::printf("FAILED: eigenvector %d\n", v);
      std::exit(1);
    }
  }
  expect_close("syevd", left, right, 1e-11);
}

}  // namespace

int main() {
  cusolverDnHandle_t handle = nullptr;
  MUST(cusolverDnCreate(&handle));
  solve(handle);
  eigenvalues(handle);
  MUST(cusolverDnDestroy(handle));
  std::printf("PASSED\n");
  return 0;
}
