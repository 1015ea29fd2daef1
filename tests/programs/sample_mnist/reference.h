// Reference: the training step on the host in plain code, for comparison with the kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "model.h"

namespace sample {

// Runs forward, backward and the update with `learning_rate` and `momentum` from `parameters` and
// `velocity` on one batch of 8-bit images.
StepValues reference_step(const Shape& shape, const std::vector<std::uint8_t>& pixels,
                          const std::vector<std::uint8_t>& labels,
                          const std::vector<float>& parameters, const std::vector<float>& velocity,
                          float learning_rate, float momentum);

}  // namespace sample
