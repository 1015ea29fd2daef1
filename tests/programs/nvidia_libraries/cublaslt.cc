// cublaslt: matrix products in f32 and f16 (sums in f32), with and without a final bias and RELU.
#include <cublasLt.h>
#include <cuda_fp16.h>

#include "check.h"

namespace {

constexpr int kM = 96, kN = 80, kK = 64;

template <typename T>
std::vector<T> as(const std::vector<float>& values) {
  std::vector<T> converted(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) converted[i] = static_cast<T>(values[i]);
  return converted;
}

template <typename T>
std::vector<float> floats(const std::vector<T>& values) {
  std::vector<float> converted(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) converted[i] = static_cast<float>(values[i]);
  return converted;
}

// out = a * b, column by column; with `epilogue` max(0, a * b + bias of the row).
template <typename T>
void multiply(const char* name, cublasLtHandle_t handle, cudaDataType type, bool epilogue,
              double tolerance) {
  const std::vector<T> a = as<T>(some_values(kM * kK, 1)), b = as<T>(some_values(kK * kN, 2));
  const std::vector<T> bias = as<T>(some_values(kM, 3));
  std::vector<double> right(kM * kN);
  for (int n = 0; n < kN; ++n) {
    for (int m = 0; m < kM; ++m) {
      double sum = epilogue ? double{static_cast<float>(bias[m])} : 0;
      for (int k = 0; k < kK; ++k) {
        sum += double{static_cast<float>(a[k * kM + m])} * static_cast<float>(b[n * kK + k]);
      }
      right[n * kM + m] = epilogue ? std::fmax(0, sum) : sum;
    }
  }
  const DeviceArray<T> device_a(a), device_b(b), device_bias(bias), out(kM * kN);
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t layout_a = nullptr, layout_b = nullptr, layout_c = nullptr;
  MUST(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  if (epilogue) {
    const cublasLtEpilogue_t kind = CUBLASLT_EPILOGUE_RELU_BIAS;
    const T* pointer = device_bias.get();
    MUST(
        cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &kind, sizeof kind));
    MUST(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &pointer,
                                        sizeof pointer));
  }
  MUST(cublasLtMatrixLayoutCreate(&layout_a, type, kM, kK, kM));
  MUST(cublasLtMatrixLayoutCreate(&layout_b, type, kK, kN, kK));
  MUST(cublasLtMatrixLayoutCreate(&layout_c, type, kM, kN, kM));
  constexpr std::size_t kWorkspace = 1 << 20;
  const DeviceArray<char> workspace(kWorkspace);
  cublasLtMatmulPreference_t preference = nullptr;
  MUST(cublasLtMatmulPreferenceCreate(&preference));
  MUST(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &kWorkspace, sizeof kWorkspace));
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  MUST(cublasLtMatmulAlgoGetHeuristic(handle, product, layout_a, layout_b, layout_c, layout_c,
                                      preference, 1, &found, &count));
  const float one = 1, zero = 0;
  MUST(cublasLtMatmul(handle, product, &one, device_a.get(), layout_a, device_b.get(), layout_b,
                      &zero, out.get(), layout_c, out.get(), layout_c, &found.algo, workspace.get(),
                      kWorkspace, nullptr));
  MUST(cudaDeviceSynchronize());
  expect_close(name, floats(out.read()), right, tolerance);
}

}  // namespace

int main() {
  cublasLtHandle_t handle = nullptr;
  MUST(cublasLtCreate(&handle));
  multiply<float>("f32", handle, CUDA_R_32F, false, 1e-5);
  multiply<__half>("f16", handle, CUDA_R_16F, false, 2e-3);
  multiply<float>("f32 with bias and RELU", handle, CUDA_R_32F, true, 1e-5);
  multiply<__half>("f16 with bias and RELU", handle, CUDA_R_16F, true, 2e-3);
  MUST(cublasLtDestroy(handle));
  std::printf("PASSED\n");
  return 0;
}
