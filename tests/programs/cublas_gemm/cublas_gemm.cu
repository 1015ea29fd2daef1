// cublas_gemm: products of float, double, half and bfloat16 by NVIDIA's cuBLAS against a host
// reference, with transposes, alpha and beta, and sizes that are not multiples of any tile.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "tests/support/cuda.h"

namespace {

// Values that float represents exactly, so that only the order of sums makes a difference.
template <typename T>
std::vector<T> values(int count, unsigned seed) {
  std::vector<T> result(count);
  for (T& value : result) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<T>(static_cast<float>(static_cast<int>(seed >> 24) - 128) / 64);
  }
  return result;
}

template <typename T>
double number(T value) {
  return static_cast<double>(static_cast<float>(value));
}
template <>
double number(double value) {
  return value;
}

template <typename T>
T* upload(const std::vector<T>& host) {
  T* device = nullptr;
  MUST(cudaMalloc(&device, host.size() * sizeof(T)));
  MUST(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

cublasStatus_t gemm(cublasHandle_t blas, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                    int n, int k, const float* alpha, const float* a, int lda, const float* b,
                    int ldb, const float* beta, float* c) {
  return cublasSgemm(blas, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, m);
}
cublasStatus_t gemm(cublasHandle_t blas, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                    int n, int k, const double* alpha, const double* a, int lda, const double* b,
                    int ldb, const double* beta, double* c) {
  return cublasDgemm(blas, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, m);
}

// Sums in float, for all types of matrices.
template <typename T>
cublasStatus_t gemm(cublasHandle_t blas, cublasOperation_t op_a, cublasOperation_t op_b, int m,
                    int n, int k, const float* alpha, const T* a, int lda, const T* b, int ldb,
                    const float* beta, T* c) {
  const cudaDataType type = std::is_same<T, __half>::value ? CUDA_R_16F : CUDA_R_16BF;
  return cublasGemmEx(blas, op_a, op_b, m, n, k, alpha, a, type, lda, b, type, ldb, beta, c, type,
                      m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

template <typename T>
bool check(cublasHandle_t blas, const char* name, bool transpose_a, bool transpose_b, int m, int n,
           int k, double tolerance) {
  const std::vector<T> a = values<T>(m * k, 1), b = values<T>(k * n, 2), c = values<T>(m * n, 3);
  T* device_a = upload(a);
  T* device_b = upload(b);
  T* device_c = upload(c);
  using Factor = typename std::conditional<std::is_same<T, double>::value, double, float>::type;
  const Factor alpha = Factor(1.5), beta = Factor(-0.5);
  const int lda = transpose_a ? k : m, ldb = transpose_b ? n : k;
  MUST(gemm(blas, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
            m, n, k, &alpha, device_a, lda, device_b, ldb, &beta, device_c));
  std::vector<T> result(m * n);
  MUST(cudaMemcpy(result.data(), device_c, result.size() * sizeof(T), cudaMemcpyDeviceToHost));

  double worst = 0;
  for (int column = 0; column < n; ++column) {
    for (int row = 0; row < m; ++row) {
      double sum = 0;
      for (int i = 0; i < k; ++i) {
        sum += number(transpose_a ? a[row * lda + i] : a[i * lda + row]) *
               number(transpose_b ? b[i * ldb + column] : b[column * ldb + i]);
      }
      const double expected = 1.5 * sum - 0.5 * number(c[column * m + row]);
      const double off = std::fabs(number(result[column * m + row]) - expected);
      worst = std::fmax(worst, off / std::fmax(1, std::fabs(expected)));
    }
  }
  const bool good = worst <= tolerance;
  std::printf("%s %c%c %d x %d x %d: %s\n", name, transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N',
              m, n, k, good ? "right" : "WRONG");
  if (!good) std::printf("largest difference %g\n", worst);
  for (T* device : {device_a, device_b, device_c}) MUST(cudaFree(device));
  return good;
}

}  // namespace

int main() {
  cublasHandle_t blas = nullptr;
  MUST(cublasCreate(&blas));
  bool good = true;
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      good &= check<float>(blas, "sgemm", transpose_a, transpose_b, 96, 64, 48, 1e-3);
      good &= check<double>(blas, "dgemm", transpose_a, transpose_b, 96, 64, 48, 1e-10);
    }
  }
  good &= check<float>(blas, "sgemm", false, false, 61, 37, 129, 1e-3);
  good &= check<double>(blas, "dgemm", false, false, 61, 37, 129, 1e-10);
  // The result has 11 bits of precision, or 8.
  for (const bool transposed : {false, true}) {
    good &= check<__half>(blas, "f16", transposed, !transposed, 96, 64, 48, 1.0 / 1024);
    good &= check<__nv_bfloat16>(blas, "bf16", transposed, !transposed, 96, 64, 48, 1.0 / 128);
  }
  good &= check<__half>(blas, "f16", false, false, 61, 37, 129, 1.0 / 1024);
  good &= check<__nv_bfloat16>(blas, "bf16", false, false, 61, 37, 129, 1.0 / 128);
  MUST(cublasDestroy(blas));
  std::printf("%s\n", good ? "PASSED" : "FAILED");
  return good ? 0 : 1;
}
