// sample_mnist: trains and evaluates a small convolutional network on real handwritten digits.
//
// A plain CUDA program that knows nothing of gpurun. Prints loss, accuracy and images/s. Exits with
// 0 only if every kernel's output of one step equals the host's and the accuracy on held-out digits
// is above the bar.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "digits.h"
#include "network.h"
#include "reference.h"

namespace sample {
namespace {

constexpr float kLearningRate = 0.05f;
constexpr float kMomentum = 0.9f;

struct Options {
  std::string data;
  std::string skipped_kernel;
  std::uint64_t seed = 1;
  int epochs = 8;
  int batch = 32;
  int report = 0;  // Interval, in steps, of reading loss and accuracy. 0: once an epoch.
  float accuracy_bar = 0.95f;
};

constexpr const char* kUsage =
    "usage: sample_mnist [--data DIR] [--seed N] [--epochs N] [--batch N] [--report STEPS]\n"
    "                    [--accuracy-bar FRACTION] [--skip-kernel NAME]\n"
    "  --data DIR          IDX files: MNIST's four, or one pair of which a fifth is held out\n"
    "                      (default: sample_mnist_data beside the program)\n"
    "  --seed N            chooses the split, the first weights and the order (default 1)\n"
    "  --report STEPS      read the loss every so many steps (default: once an epoch)\n"
    "  --skip-kernel NAME  never launch that kernel, to see that the checks notice\n";

// The digits that are installed beside the program.
std::string default_data(const char* program) {
  const std::string path = program;
  const std::size_t slash = path.rfind('/');
  return (slash == std::string::npos ? std::string(".") : path.substr(0, slash)) +
         "/sample_mnist_data";
}

bool parse(int argc, char** argv, Options* options) {
  options->data = default_data(argv[0]);
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) return false;
    const char* value = argv[i + 1];
    char* end = nullptr;
    if (name == "--data") {
      options->data = value;
      continue;
    }
    if (name == "--skip-kernel") {
      options->skipped_kernel = value;
      if (std::find(kKernels.begin(), kKernels.end(), options->skipped_kernel) == kKernels.end()) {
        std::fprintf(stderr, "sample_mnist: there is no kernel '%s'\n", value);
        return false;
      }
      continue;
    }
    const double number = std::strtod(value, &end);
    if (end == value || *end != '\0' || number < 0 || number > 1e9) return false;
    if (name == "--seed") {
      options->seed = static_cast<std::uint64_t>(number);
    } else if (name == "--epochs" && number >= 1) {
      options->epochs = static_cast<int>(number);
    } else if (name == "--batch" && number >= 1 && number <= 1024) {
      options->batch = static_cast<int>(number);
    } else if (name == "--report") {
      options->report = static_cast<int>(number);
    } else if (name == "--accuracy-bar" && number <= 1) {
      options->accuracy_bar = static_cast<float>(number);
    } else {
      return false;
    }
  }
  return true;
}

std::vector<float> first_parameters(const Shape& shape, Random& random) {
  std::vector<float> parameters(shape.parameter_count(), 0.0f);
  const float filter_scale = std::sqrt(2.0f / kFilterTaps);
  const float dense_scale = std::sqrt(1.0f / static_cast<float>(shape.features()));
  for (int i = 0; i < shape.filter_bias_at(); ++i) {
    parameters[i] = filter_scale * random.symmetric();
  }
  for (int i = shape.dense_at(); i < shape.dense_bias_at(); ++i) {
    parameters[i] = dense_scale * random.symmetric();
  }
  return parameters;
}

// Sums have another order on the GPU and the host. Single numbers agree to this.
bool agree(const char* what, const std::vector<float>& gpu, const std::vector<float>& host) {
  for (std::size_t i = 0; i < host.size(); ++i) {
    if (!(std::fabs(gpu[i] - host[i]) <= 1e-4f + 1e-3f * std::fabs(host[i]))) {
      std::printf("MISMATCH %s[%zu]: GPU %g, host %g\n", what, i, gpu[i], host[i]);
      return false;
    }
  }
  return true;
}

// One step on the GPU and on the host from the same start, compared buffer by buffer.
bool verify_step(const Options& options, const Shape& shape, const Split& split,
                 const std::vector<float>& parameters) {
  Network network(shape, split.training, split.held_out, parameters, options.skipped_kernel);
  Random random(options.seed + 17);
  const std::vector<std::int32_t> order = shuffled(split.training.count(), random);
  network.train(order.data(), kLearningRate, kMomentum, /*clear_gradient=*/false);
  const StepValues gpu = network.read_step();

  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
  for (int n = 0; n < shape.batch; ++n) {
    const auto first = split.training.pixels.begin() + std::ptrdiff_t{order[n]} * shape.pixels();
    pixels.insert(pixels.end(), first, first + shape.pixels());
    labels.push_back(split.training.labels[static_cast<std::size_t>(order[n])]);
  }
  const StepValues host =
      reference_step(shape, pixels, labels, parameters, std::vector<float>(parameters.size(), 0.0f),
                     kLearningRate, kMomentum);
  return agree("images", gpu.images, host.images) &
         agree("convolved", gpu.convolved, host.convolved) &
         agree("pooled", gpu.pooled, host.pooled) & agree("logits", gpu.logits, host.logits) &
         agree("gradient", gpu.gradient, host.gradient) &
         agree("velocity", gpu.velocity, host.velocity) &
         agree("parameters", gpu.parameters, host.parameters) &
         agree("loss", {gpu.loss_sum}, {host.loss_sum}) &
         agree("correct", {static_cast<float>(gpu.correct)}, {static_cast<float>(host.correct)});
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int run(const Options& options) {
  Split split;
  std::string error;
  if (!load_digits(options.data, options.seed, &split, &error)) {
    std::fprintf(stderr, "sample_mnist: %s\n", error.c_str());
    return 2;
  }
  const Shape shape{split.training.height, split.training.width, options.batch};
  if (split.training.count() < options.batch || split.held_out.count() < options.batch) {
    std::fprintf(stderr, "sample_mnist: fewer digits than one batch of %d\n", options.batch);
    return 2;
  }
  cudaDeviceProp device;
  SAMPLE_CHECK(cudaGetDeviceProperties(&device, 0));
  std::printf("device: %s\ndigits: %d to train, %d held out, %d x %d pixels\n", device.name,
              split.training.count(), split.held_out.count(), shape.width, shape.height);
  std::printf("held-out set: %016llx\n", static_cast<unsigned long long>(digest(split.held_out)));

  Random random(options.seed);
  const std::vector<float> parameters = first_parameters(shape, random);
  const bool verified = verify_step(options, shape, split, parameters);
  std::printf("one step against the host: %s\n", verified ? "equal" : "DIFFERENT");

  Network network(shape, split.training, split.held_out, parameters, options.skipped_kernel);
  const auto start = std::chrono::steady_clock::now();
  int images = 0;
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    const std::vector<std::int32_t> order = shuffled(split.training.count(), random);
    int step = 0;
    for (int at = 0; at + options.batch <= split.training.count(); at += options.batch) {
      network.train(&order[static_cast<std::size_t>(at)], kLearningRate, kMomentum);
      images += options.batch;
      if (options.report > 0 && ++step % options.report == 0) {
        std::printf("epoch %d step %d: loss %.4f\n", epoch, step,
                    network.read_training_score().loss);
      }
    }
    const Score score = network.read_training_score();
    if (options.report == 0) {
      std::printf("epoch %d: loss %.4f, training accuracy %.1f %%\n", epoch, score.loss,
                  100 * score.accuracy);
      std::fflush(stdout);
    }
  }
  const double seconds = seconds_since(start);
  const float accuracy = network.evaluate(split.held_out);
  std::printf("accuracy on held-out digits: %.2f %%\n%.0f images/s\n", 100 * accuracy,
              images / seconds);
  const bool good = verified && accuracy > options.accuracy_bar;
  std::printf("%s\n", good ? "PASSED" : "FAILED");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace sample

int main(int argc, char** argv) {
  sample::Options options;
  if (!sample::parse(argc, argv, &options)) {
    std::fputs(sample::kUsage, stderr);
    return 2;
  }
  return sample::run(options);
}
