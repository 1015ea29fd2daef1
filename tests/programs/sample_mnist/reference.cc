// Reference: the training step as plain loops.
#include "reference.h"

#include <algorithm>
#include <cmath>

namespace sample {
namespace {

float pixel_at(const float* image, const Shape& shape, int y, int x) {
  return y < 0 || x < 0 || y >= shape.height || x >= shape.width ? 0.0f
                                                                 : image[y * shape.width + x];
}

void forward(const Shape& shape, const std::vector<float>& parameters, StepValues& values,
             std::vector<int>& winners) {
  const int half_width = shape.width / 2;
  for (int n = 0; n < shape.batch; ++n) {
    const float* image = &values.images[n * shape.pixels()];
    for (int f = 0; f < kFilters; ++f) {
      float* convolved = &values.convolved[(n * kFilters + f) * shape.pixels()];
      for (int y = 0; y < shape.height; ++y) {
        for (int x = 0; x < shape.width; ++x) {
          float sum = parameters[shape.filter_bias_at() + f];
          for (int t = 0; t < kFilterTaps; ++t) {
            sum += parameters[f * kFilterTaps + t] *
                   pixel_at(image, shape, y + t / 3 - 1, x + t % 3 - 1);
          }
          convolved[y * shape.width + x] = std::max(sum, 0.0f);
        }
      }
      for (int p = 0; p < shape.pooled_pixels(); ++p) {
        const int corner = p / half_width * 2 * shape.width + p % half_width * 2;
        int winner = corner;
        for (const int candidate : {corner + 1, corner + shape.width, corner + shape.width + 1}) {
          if (convolved[candidate] > convolved[winner]) winner = candidate;
        }
        const int feature = n * shape.features() + f * shape.pooled_pixels() + p;
        values.pooled[feature] = convolved[winner];
        winners[feature] = winner;
      }
    }
    for (int c = 0; c < kClasses; ++c) {
      float sum = parameters[shape.dense_bias_at() + c];
      for (int i = 0; i < shape.features(); ++i) {
        sum += parameters[shape.dense_at() + c * shape.features() + i] *
               values.pooled[n * shape.features() + i];
      }
      values.logits[n * kClasses + c] = sum;
    }
  }
}

// Loss, hits and the gradient of the mean loss with respect to the logits.
std::vector<float> softmax(const Shape& shape, const std::vector<std::uint8_t>& labels,
                           StepValues& values) {
  std::vector<float> gradient(values.logits.size());
  for (int n = 0; n < shape.batch; ++n) {
    const float* logits = &values.logits[n * kClasses];
    const int best = static_cast<int>(std::max_element(logits, logits + kClasses) - logits);
    float sum = 0;
    for (int c = 0; c < kClasses; ++c) sum += std::exp(logits[c] - logits[best]);
    values.loss_sum += std::log(sum) + logits[best] - logits[labels[n]];
    values.correct += best == labels[n];
    for (int c = 0; c < kClasses; ++c) {
      const float probability = std::exp(logits[c] - logits[best]) / sum;
      gradient[n * kClasses + c] =
          (probability - (c == labels[n] ? 1.0f : 0.0f)) / static_cast<float>(shape.batch);
    }
  }
  return gradient;
}

void backward(const Shape& shape, const std::vector<float>& parameters,
              const std::vector<float>& logit_gradient, const std::vector<int>& winners,
              StepValues& values) {
  for (int n = 0; n < shape.batch; ++n) {
    const float* image = &values.images[n * shape.pixels()];
    for (int c = 0; c < kClasses; ++c) {
      values.gradient[shape.dense_bias_at() + c] += logit_gradient[n * kClasses + c];
    }
    for (int i = 0; i < shape.features(); ++i) {
      const int feature = n * shape.features() + i;
      float pooled_gradient = 0;
      for (int c = 0; c < kClasses; ++c) {
        const float upstream = logit_gradient[n * kClasses + c];
        values.gradient[shape.dense_at() + c * shape.features() + i] +=
            upstream * values.pooled[feature];
        pooled_gradient += upstream * parameters[shape.dense_at() + c * shape.features() + i];
      }
      if (values.pooled[feature] <= 0) continue;  // ReLU
      const int f = i / shape.pooled_pixels();
      const int y = winners[feature] / shape.width;
      const int x = winners[feature] % shape.width;
      values.gradient[shape.filter_bias_at() + f] += pooled_gradient;
      for (int t = 0; t < kFilterTaps; ++t) {
        values.gradient[f * kFilterTaps + t] +=
            pooled_gradient * pixel_at(image, shape, y + t / 3 - 1, x + t % 3 - 1);
      }
    }
  }
}

}  // namespace

StepValues reference_step(const Shape& shape, const std::vector<std::uint8_t>& pixels,
                          const std::vector<std::uint8_t>& labels,
                          const std::vector<float>& parameters, const std::vector<float>& velocity,
                          float learning_rate, float momentum) {
  StepValues values;
  values.images.resize(pixels.size());
  std::transform(pixels.begin(), pixels.end(), values.images.begin(),
                 [](std::uint8_t pixel) { return static_cast<float>(pixel) / 255.0f; });
  values.convolved.resize(shape.convolved_floats());
  values.pooled.resize(shape.pooled_floats());
  values.logits.resize(shape.batch * kClasses);
  values.gradient.resize(parameters.size());
  std::vector<int> winners(values.pooled.size());

  forward(shape, parameters, values, winners);
  backward(shape, parameters, softmax(shape, labels, values), winners, values);

  values.velocity = velocity;
  values.parameters = parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    values.velocity[i] = momentum * velocity[i] - learning_rate * values.gradient[i];
    values.parameters[i] += values.velocity[i];
  }
  return values;
}

}  // namespace sample
