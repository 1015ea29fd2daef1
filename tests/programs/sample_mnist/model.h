// Model: convolution 3x3 (padding 1) + ReLU, max pooling 2x2, one dense layer, softmax.
//
// The kernels and the host reference use one set of buffers in one layout.
#pragma once

#include <cstddef>
#include <vector>

// Also called by kernels, when nvcc reads this.
#ifdef __CUDACC__
#define SAMPLE_BOTH __host__ __device__
#else
#define SAMPLE_BOTH
#endif

namespace sample {

inline constexpr int kFilters = 16;
inline constexpr int kFilterTaps = 9;  // 3 x 3
inline constexpr int kClasses = 10;

struct Shape {
  int height;
  int width;
  int batch;

  SAMPLE_BOTH int pixels() const { return height * width; }
  SAMPLE_BOTH int pooled_pixels() const { return pixels() / 4; }
  SAMPLE_BOTH int features() const { return kFilters * pooled_pixels(); }
  SAMPLE_BOTH int convolved_floats() const { return batch * kFilters * pixels(); }
  SAMPLE_BOTH int pooled_floats() const { return batch * features(); }

  // One array has all trainable numbers: filters, filter biases, dense weights, dense biases.
  SAMPLE_BOTH int filter_bias_at() const { return kFilters * kFilterTaps; }
  SAMPLE_BOTH int dense_at() const { return filter_bias_at() + kFilters; }
  SAMPLE_BOTH int dense_bias_at() const { return dense_at() + kClasses * features(); }
  SAMPLE_BOTH int parameter_count() const { return dense_bias_at() + kClasses; }
};

// The results of one step, on the host or copied from the GPU, for comparison.
struct StepValues {
  std::vector<float> images;      // batch x pixels, 0 to 1
  std::vector<float> convolved;   // batch x filters x pixels, after ReLU
  std::vector<float> pooled;      // batch x features
  std::vector<float> logits;      // batch x classes
  std::vector<float> gradient;    // as the parameters
  std::vector<float> velocity;    // after the step
  std::vector<float> parameters;  // after the step
  float loss_sum = 0;             // over the batch
  int correct = 0;                // in the batch
};

}  // namespace sample
