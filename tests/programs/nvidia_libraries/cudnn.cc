// cudnn: softmax, pooling, batch norm, and convolution forward and backward (data and filter), with
// each available algorithm, in f32, against sums computed here.
#include <cudnn.h>

#include <algorithm>

#include "check.h"

namespace {

// One image size for all: batch, channels, height, width, and a filter of 3 x 3.
constexpr int kBatch = 2, kIn = 3, kOut = 4, kHeight = 8, kWidth = 7, kFilter = 3, kPad = 1;
constexpr int kPlane = kHeight * kWidth;
constexpr float kOne = 1, kZero = 0;

int at(int channels, int n, int c, int y, int x) {
  return ((n * channels + c) * kHeight + y) * kWidth + x;
}
int filter_at(int out, int in, int y, int x) {
  return ((out * kIn + in) * kFilter + y) * kFilter + x;
}

cudnnTensorDescriptor_t tensor(int n, int c, int h, int w) {
  cudnnTensorDescriptor_t made = nullptr;
  MUST(cudnnCreateTensorDescriptor(&made));
  MUST(cudnnSetTensor4dDescriptor(made, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, w));
  return made;
}

void softmax(cudnnHandle_t handle) {
  const std::vector<float> in = some_values(kBatch * kIn * kPlane, 1);
  const DeviceArray<float> from(in), to(in.size());
  const auto shape = tensor(kBatch, kIn, kHeight, kWidth);
  MUST(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &kOne, shape,
                           from.get(), &kZero, shape, to.get()));
  std::vector<double> right(in.size());
  for (int n = 0; n < kBatch; ++n) {
    for (int i = 0; i < kPlane; ++i) {
      double sum = 0;
      for (int c = 0; c < kIn; ++c) sum += std::exp(double{in[(n * kIn + c) * kPlane + i]});
      for (int c = 0; c < kIn; ++c) {
        const int place = (n * kIn + c) * kPlane + i;
        right[place] = std::exp(double{in[place]}) / sum;
      }
    }
  }
  expect_close("softmax", to.read(), right, 1e-6);
}

void pooling(cudnnHandle_t handle) {
  const std::vector<float> in = some_values(kBatch * kIn * kPlane, 2);
  constexpr int kHigh = kHeight / 2, kWide = kWidth / 2;
  for (const auto mode : {CUDNN_POOLING_MAX, CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING}) {
    cudnnPoolingDescriptor_t window = nullptr;
    MUST(cudnnCreatePoolingDescriptor(&window));
    MUST(cudnnSetPooling2dDescriptor(window, mode, CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2));
    const DeviceArray<float> from(in), to(kBatch * kIn * kHigh * kWide);
    MUST(cudnnPoolingForward(handle, window, &kOne, tensor(kBatch, kIn, kHeight, kWidth),
                             from.get(), &kZero, tensor(kBatch, kIn, kHigh, kWide), to.get()));
    std::vector<double> right;
    for (int n = 0; n < kBatch; ++n) {
      for (int c = 0; c < kIn; ++c) {
        for (int y = 0; y < kHigh; ++y) {
          for (int x = 0; x < kWide; ++x) {
            const double four[] = {
                in[at(kIn, n, c, 2 * y, 2 * x)], in[at(kIn, n, c, 2 * y, 2 * x + 1)],
                in[at(kIn, n, c, 2 * y + 1, 2 * x)], in[at(kIn, n, c, 2 * y + 1, 2 * x + 1)]};
            right.push_back(mode == CUDNN_POOLING_MAX
                                ? *std::max_element(four, four + 4)
                                : (four[0] + four[1] + four[2] + four[3]) / 4);
          }
        }
      }
    }
    expect_close(mode == CUDNN_POOLING_MAX ? "pooling (max)" : "pooling (mean)", to.read(), right,
                 1e-6);
  }
}

void batch_norm(cudnnHandle_t handle) {
  constexpr double kEpsilon = 1e-5;
  const std::vector<float> in = some_values(kBatch * kIn * kPlane, 3);
  const std::vector<float> scale = some_values(kIn, 4), bias = some_values(kIn, 5);
  const DeviceArray<float> from(in), to(in.size()), device_scale(scale), device_bias(bias);
  const DeviceArray<float> means(kIn), variances(kIn), saved_means(kIn), saved_inverses(kIn);
  const auto shape = tensor(kBatch, kIn, kHeight, kWidth), channels = tensor(1, kIn, 1, 1);
  MUST(cudnnBatchNormalizationForwardTraining(
      handle, CUDNN_BATCHNORM_SPATIAL, &kOne, &kZero, shape, from.get(), shape, to.get(), channels,
      device_scale.get(), device_bias.get(), 1, means.get(), variances.get(), kEpsilon,
      saved_means.get(), saved_inverses.get()));
  std::vector<double> right(in.size()), right_means(kIn);
  for (int c = 0; c < kIn; ++c) {
    double sum = 0, squares = 0;
    for (int n = 0; n < kBatch; ++n) {
      for (int i = 0; i < kPlane; ++i) {
        const double value = in[(n * kIn + c) * kPlane + i];
        sum += value;
        squares += value * value;
      }
    }
    const double mean = sum / (kBatch * kPlane);
    const double variance = squares / (kBatch * kPlane) - mean * mean;
    right_means[c] = mean;
    for (int n = 0; n < kBatch; ++n) {
      for (int i = 0; i < kPlane; ++i) {
        const int place = (n * kIn + c) * kPlane + i;
        right[place] = scale[c] * (in[place] - mean) / std::sqrt(variance + kEpsilon) + bias[c];
      }
    }
  }
  expect_close("batch norm", to.read(), right, 1e-5);
  expect_close("batch norm's means", means.read(), right_means, 1e-5);
}

struct Convolution {
  cudnnTensorDescriptor_t in = tensor(kBatch, kIn, kHeight, kWidth);
  cudnnTensorDescriptor_t out = tensor(kBatch, kOut, kHeight, kWidth);
  cudnnFilterDescriptor_t filter = nullptr;
  cudnnConvolutionDescriptor_t how = nullptr;

  Convolution() {
    MUST(cudnnCreateFilterDescriptor(&filter));
    MUST(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, kOut, kIn, kFilter,
                                    kFilter));
    MUST(cudnnCreateConvolutionDescriptor(&how));
    MUST(cudnnSetConvolution2dDescriptor(how, kPad, kPad, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                         CUDNN_DATA_FLOAT));
    MUST(cudnnSetConvolutionMathType(how, CUDNN_FMA_MATH));
  }
};

// Calls `each(out, in, weight)` with the indices of the three values in each product of the
// convolution.
template <typename Each>
void for_each_product(Each each) {
  for (int n = 0; n < kBatch; ++n) {
    for (int o = 0; o < kOut; ++o) {
      for (int c = 0; c < kIn; ++c) {
        for (int place = 0; place < kPlane * kFilter * kFilter; ++place) {
          const int y = place / kFilter / kFilter / kWidth, x = place / kFilter / kFilter % kWidth;
          const int fy = place / kFilter % kFilter, fx = place % kFilter;
          const int from_y = y + fy - kPad, from_x = x + fx - kPad;
          if (from_y < 0 || from_y >= kHeight || from_x < 0 || from_x >= kWidth) continue;
          each(at(kOut, n, o, y, x), at(kIn, n, c, from_y, from_x), filter_at(o, c, fy, fx));
        }
      }
    }
  }
}

// Runs each algorithm of 0 to `count` that the library supports. There must be at least one.
template <typename Bytes, typename Run>
void each_algorithm(const char* name, int count, const DeviceArray<float>& result,
                    const std::vector<double>& right, Bytes bytes_of, Run run) {
  int ran = 0;
  for (int algorithm = 0; algorithm < count; ++algorithm) {
    std::size_t bytes = 0;
    if (bytes_of(algorithm, &bytes) != CUDNN_STATUS_SUCCESS) continue;
    const DeviceArray<char> workspace(bytes + 1);
    const cudnnStatus_t status = run(algorithm, workspace.get(), bytes);
    if (status == CUDNN_STATUS_NOT_SUPPORTED ||
        status == CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH) {
      std::printf("%s: algorithm %d is not supported\n", name, algorithm);
      continue;
    }
    MUST(status);
    MUST(cudaDeviceSynchronize());
    std::printf("algorithm %d, ", algorithm);
    expect_close(name, result.read(), right, 1e-4);
    ++ran;
  }
  if (ran == 0) {
    std::printf("FAILED: %s: no algorithm\n", name);
    std::exit(1);
  }
}

void convolution(cudnnHandle_t handle) {
  const Convolution shape;
  const std::vector<float> in = some_values(kBatch * kIn * kPlane, 6);
  const std::vector<float> weights = some_values(kOut * kIn * kFilter * kFilter, 7);
  const std::vector<float> gradient = some_values(kBatch * kOut * kPlane, 8);
  std::vector<double> out(gradient.size()), in_gradient(in.size()), weight_gradient(weights.size());
  for_each_product([&](int o, int i, int w) {
    out[o] += double{in[i]} * weights[w];
    in_gradient[i] += double{gradient[o]} * weights[w];
    weight_gradient[w] += double{gradient[o]} * in[i];
  });
  const DeviceArray<float> x(in), w(weights), dy(gradient);
  const DeviceArray<float> y(out.size()), dx(in.size()), dw(weights.size());
  using Forward = cudnnConvolutionFwdAlgo_t;
  each_algorithm(
      "convolution", CUDNN_CONVOLUTION_FWD_ALGO_COUNT, y, out,
      [&](int algorithm, std::size_t* bytes) {
        return cudnnGetConvolutionForwardWorkspaceSize(handle, shape.in, shape.filter, shape.how,
                                                       shape.out, Forward(algorithm), bytes);
      },
      [&](int algorithm, void* workspace, std::size_t bytes) {
        return cudnnConvolutionForward(handle, &kOne, shape.in, x.get(), shape.filter, w.get(),
                                       shape.how, Forward(algorithm), workspace, bytes, &kZero,
                                       shape.out, y.get());
      });
  using BackwardData = cudnnConvolutionBwdDataAlgo_t;
  each_algorithm(
      "convolution's data gradient", CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, dx, in_gradient,
      [&](int algorithm, std::size_t* bytes) {
        return cudnnGetConvolutionBackwardDataWorkspaceSize(
            handle, shape.filter, shape.out, shape.how, shape.in, BackwardData(algorithm), bytes);
      },
      [&](int algorithm, void* workspace, std::size_t bytes) {
        return cudnnConvolutionBackwardData(handle, &kOne, shape.filter, w.get(), shape.out,
                                            dy.get(), shape.how, BackwardData(algorithm), workspace,
                                            bytes, &kZero, shape.in, dx.get());
      });
  using BackwardFilter = cudnnConvolutionBwdFilterAlgo_t;
  each_algorithm(
      "convolution's filter gradient", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, dw, weight_gradient,
      [&](int algorithm, std::size_t* bytes) {
        return cudnnGetConvolutionBackwardFilterWorkspaceSize(
            handle, shape.in, shape.out, shape.how, shape.filter, BackwardFilter(algorithm), bytes);
      },
      [&](int algorithm, void* workspace, std::size_t bytes) {
        return cudnnConvolutionBackwardFilter(handle, &kOne, shape.in, x.get(), shape.out, dy.get(),
                                              shape.how, BackwardFilter(algorithm), workspace,
                                              bytes, &kZero, shape.filter, dw.get());
      });
}

}  // namespace

int main() {
  cudnnHandle_t handle = nullptr;
  MUST(cudnnCreate(&handle));
  softmax(handle);
  pooling(handle);
  batch_norm(handle);
  convolution(handle);
  MUST(cudnnDestroy(handle));
  std::printf("PASSED\n");
  return 0;
}
