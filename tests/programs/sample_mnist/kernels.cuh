// Kernels of one training step. network.cu sets the sizes of blocks and shared memory.
#pragma once

#include <cstdint>

#include "model.h"

namespace sample {

// A batch by index: 8-bit pixels to floats from 0 to 1, and its labels.
__global__ void gather_batch(const std::uint8_t* pixels, const std::uint8_t* labels,
                             const std::int32_t* order, Shape shape, float* batch_images,
                             std::int32_t* batch_labels);
// One block for each image and filter. Image (with a border of zeros) and filter in shared memory.
__global__ void convolve_relu(const float* images, const float* parameters, Shape shape,
                              float* convolved);
// The maximum of 2 x 2 and its position.
__global__ void pool_max(const float* convolved, Shape shape, float* pooled, std::int32_t* winners);
// One block for each image, one warp for each class in turn. Sums by warp shuffles.
__global__ void dense_forward(const float* pooled, const float* parameters, Shape shape,
                              float* logits);
// One thread for each image. Gradient of the mean loss. Loss and hits added up by atomics.
__global__ void softmax_loss(const float* logits, const std::int32_t* labels, Shape shape,
                             float* logit_gradient, float* loss_sum, std::int32_t* correct);
// One thread for each weight (and one more in each class for its bias).
__global__ void dense_backward_weights(const float* pooled, const float* logit_gradient,
                                       Shape shape, float* gradient);
// One thread for each feature. Zero where ReLU was off.
__global__ void dense_backward_input(const float* pooled, const float* parameters,
                                     const float* logit_gradient, Shape shape,
                                     float* pooled_gradient);
// One block for each image and filter. Nine taps and the bias are reduced in shared memory, then
// added to the others' by atomics.
__global__ void convolve_backward(const float* images, const float* pooled_gradient,
                                  const std::int32_t* winners, Shape shape, float* gradient);
// Momentum update. Also clears the gradient for the next step.
__global__ void update_parameters(float* parameters, float* velocity, float* gradient, int count,
                                  float learning_rate, float momentum, bool clear_gradient);

}  // namespace sample
