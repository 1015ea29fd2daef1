// Kernels of the network: the work of each thread.
#include "kernels.cuh"

namespace sample {

__global__ void gather_batch(const std::uint8_t* pixels, const std::uint8_t* labels,
                             const std::int32_t* order, Shape shape, float* batch_images,
                             std::int32_t* batch_labels) {
  const int image = order[blockIdx.x];
  for (int i = threadIdx.x; i < shape.pixels(); i += blockDim.x) {
    batch_images[blockIdx.x * shape.pixels() + i] = pixels[image * shape.pixels() + i] / 255.0f;
  }
  if (threadIdx.x == 0) batch_labels[blockIdx.x] = labels[image];
}

__global__ void convolve_relu(const float* images, const float* parameters, Shape shape,
                              float* convolved) {
  extern __shared__ float bordered[];  // (height + 2) x (width + 2)
  __shared__ float taps[kFilterTaps];
  const int image = blockIdx.x;
  const int filter = blockIdx.y;
  const int stride = shape.width + 2;
  for (int i = threadIdx.x; i < stride * (shape.height + 2); i += blockDim.x) {
    const int y = i / stride - 1;
    const int x = i % stride - 1;
    const bool inside = y >= 0 && x >= 0 && y < shape.height && x < shape.width;
    bordered[i] = inside ? images[image * shape.pixels() + y * shape.width + x] : 0.0f;
  }
  if (threadIdx.x < kFilterTaps) {
    taps[threadIdx.x] = parameters[filter * kFilterTaps + threadIdx.x];
  }
  __syncthreads();

  const float bias = parameters[shape.filter_bias_at() + filter];
  for (int i = threadIdx.x; i < shape.pixels(); i += blockDim.x) {
    const float* window = &bordered[i / shape.width * stride + i % shape.width];
    float sum = bias;
    for (int t = 0; t < kFilterTaps; ++t) sum += taps[t] * window[t / 3 * stride + t % 3];
    convolved[(image * kFilters + filter) * shape.pixels() + i] = fmaxf(sum, 0.0f);
  }
}

__global__ void pool_max(const float* convolved, Shape shape, float* pooled,
                         std::int32_t* winners) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= shape.pooled_floats()) return;
  const int plane = index / shape.pooled_pixels();
  const int p = index % shape.pooled_pixels();
  const int half_width = shape.width / 2;
  const float* values = convolved + plane * shape.pixels();
  const int corner = p / half_width * 2 * shape.width + p % half_width * 2;
  int winner = corner;
  if (values[corner + 1] > values[winner]) winner = corner + 1;
  if (values[corner + shape.width] > values[winner]) winner = corner + shape.width;
  if (values[corner + shape.width + 1] > values[winner]) winner = corner + shape.width + 1;
  pooled[index] = values[winner];
  winners[index] = winner;
}

__global__ void dense_forward(const float* pooled, const float* parameters, Shape shape,
                              float* logits) {
  const int image = blockIdx.x;
  const int lane = threadIdx.x % 32;
  const float* features = pooled + image * shape.features();
  for (int c = threadIdx.x / 32; c < kClasses; c += blockDim.x / 32) {
    const float* weights = parameters + shape.dense_at() + c * shape.features();
    float sum = 0;
    for (int i = lane; i < shape.features(); i += 32) sum += weights[i] * features[i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (lane == 0) {
      logits[image * kClasses + c] = sum + parameters[shape.dense_bias_at() + c];
    }
  }
}

__global__ void softmax_loss(const float* logits, const std::int32_t* labels, Shape shape,
                             float* logit_gradient, float* loss_sum, std::int32_t* correct) {
  const int image = blockIdx.x * blockDim.x + threadIdx.x;
  if (image >= shape.batch) return;
  const float* mine = logits + image * kClasses;
  int best = 0;
  for (int c = 1; c < kClasses; ++c) {
    if (mine[c] > mine[best]) best = c;
  }
  float sum = 0;
  for (int c = 0; c < kClasses; ++c) sum += expf(mine[c] - mine[best]);
  const int label = labels[image];
  atomicAdd(loss_sum, logf(sum) + mine[best] - mine[label]);
  if (best == label) atomicAdd(correct, 1);
  for (int c = 0; c < kClasses; ++c) {
    const float probability = expf(mine[c] - mine[best]) / sum;
    logit_gradient[image * kClasses + c] = (probability - (c == label ? 1.0f : 0.0f)) / shape.batch;
  }
}

__global__ void dense_backward_weights(const float* pooled, const float* logit_gradient,
                                       Shape shape, float* gradient) {
  const int feature = blockIdx.x * blockDim.x + threadIdx.x;
  const int c = blockIdx.y;
  if (feature > shape.features()) return;
  const bool is_bias = feature == shape.features();
  float sum = 0;
  for (int n = 0; n < shape.batch; ++n) {
    sum += logit_gradient[n * kClasses + c] *
           (is_bias ? 1.0f : pooled[n * shape.features() + feature]);
  }
  gradient[is_bias ? shape.dense_bias_at() + c
                   : shape.dense_at() + c * shape.features() + feature] = sum;
}

__global__ void dense_backward_input(const float* pooled, const float* parameters,
                                     const float* logit_gradient, Shape shape,
                                     float* pooled_gradient) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= shape.pooled_floats()) return;
  const int image = index / shape.features();
  const int feature = index % shape.features();
  float sum = 0;
  for (int c = 0; c < kClasses; ++c) {
    sum += logit_gradient[image * kClasses + c] *
           parameters[shape.dense_at() + c * shape.features() + feature];
  }
  pooled_gradient[index] = pooled[index] > 0 ? sum : 0.0f;
}

__global__ void convolve_backward(const float* images, const float* pooled_gradient,
                                  const std::int32_t* winners, Shape shape, float* gradient) {
  __shared__ float totals[kFilterTaps + 1];
  const int image = blockIdx.x;
  const int filter = blockIdx.y;
  if (threadIdx.x <= kFilterTaps) totals[threadIdx.x] = 0;
  __syncthreads();

  const int plane = image * shape.features() + filter * shape.pooled_pixels();
  for (int p = threadIdx.x; p < shape.pooled_pixels(); p += blockDim.x) {
    const float upstream = pooled_gradient[plane + p];
    const int y = winners[plane + p] / shape.width;
    const int x = winners[plane + p] % shape.width;
    for (int t = 0; t < kFilterTaps; ++t) {
      const int from_y = y + t / 3 - 1;
      const int from_x = x + t % 3 - 1;
      if (from_y >= 0 && from_x >= 0 && from_y < shape.height && from_x < shape.width) {
        atomicAdd(&totals[t],
                  upstream * images[image * shape.pixels() + from_y * shape.width + from_x]);
      }
    }
    atomicAdd(&totals[kFilterTaps], upstream);
  }
  __syncthreads();
  if (threadIdx.x < kFilterTaps) {
    atomicAdd(&gradient[filter * kFilterTaps + threadIdx.x], totals[threadIdx.x]);
  } else if (threadIdx.x == kFilterTaps) {
    atomicAdd(&gradient[shape.filter_bias_at() + filter], totals[kFilterTaps]);
  }
}

__global__ void update_parameters(float* parameters, float* velocity, float* gradient, int count,
                                  float learning_rate, float momentum, bool clear_gradient) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= count) return;
  velocity[index] = momentum * velocity[index] - learning_rate * gradient[index];
  parameters[index] += velocity[index];
  if (clear_gradient) gradient[index] = 0;
}

}  // namespace sample
