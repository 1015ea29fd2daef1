// Network on the GPU: its buffers, streams and events, and one training step as launches.
//
// A step uses three streams: `copy_` brings the next batch's order from pinned memory while the
// previous step still runs, `main_` computes, and `side_` computes the dense layer's weight
// gradient beside the rest of the backward pass. Nothing in a step waits on the host.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "digits.h"
#include "model.h"

namespace sample {

struct Score {
  float loss = 0;      // Mean over the images.
  float accuracy = 0;  // 0 to 1.
};

// The kernels of a step, in the order of their first launch.
inline constexpr std::array<std::string_view, 9> kKernels = {
    "gather_batch",         "convolve_relu",     "pool_max",
    "dense_forward",        "softmax_loss",      "dense_backward_weights",
    "dense_backward_input", "convolve_backward", "update_parameters"};

class Network {
 public:
  // `skipped_kernel`: one of kKernels that is never launched (to show that the checks detect it),
  // or "".
  Network(const Shape& shape, const Digits& training, const Digits& held_out,
          const std::vector<float>& parameters, std::string skipped_kernel);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Queues one step on the images order[0 .. batch). Returns at once, except for a wait until the
  // pinned slot that it fills is free (two slots).
  void train(const std::int32_t* order, float learning_rate, float momentum,
             bool clear_gradient = true);
  // Returns loss and accuracy over the batches since the last call. Waits for them: one result
  // read.
  Score read_training_score();
  // Runs a forward pass over all whole batches of the held-out set `digits`. Returns the share of
  // images, 0 to 1, with the greatest logit at their label. The host finds it, so that the GPU does
  // not grade itself. Waits once.
  float evaluate(const Digits& digits);
  // Returns all results of the last step. Waits.
  StepValues read_step();

 private:
  struct Set {
    std::uint8_t* pixels = nullptr;
    std::uint8_t* labels = nullptr;
    int count = 0;
  };
  struct Tally {  // Sums by kernels, which the host reads as one result.
    float loss_sum;
    std::int32_t correct;
  };
  struct Slot {
    std::int32_t* host_order = nullptr;  // Pinned.
    std::int32_t* order = nullptr;
    cudaEvent_t uploaded = nullptr;
    cudaEvent_t used = nullptr;
  };

  template <typename T>
  T* allocate(std::size_t count);
  template <typename... Parameters, typename... Arguments>
  void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, int block,
              int shared_bytes, cudaStream_t stream, Arguments... arguments);
  void upload(const Digits& digits, Set* set);
  Slot& fill_slot(const std::int32_t* order);
  void forward(const Set& set, Slot& slot);
  void backward();

  const Shape shape_;
  const std::string skipped_kernel_;
  std::vector<void*> allocations_;
  cudaStream_t main_ = nullptr, side_ = nullptr, copy_ = nullptr;
  cudaEvent_t forward_done_ = nullptr, side_done_ = nullptr;
  Slot slots_[2];
  int next_slot_ = 0;
  int images_since_read_ = 0;

  Set training_, held_out_;
  float* images_ = nullptr;
  std::int32_t* labels_ = nullptr;
  float* convolved_ = nullptr;
  float* pooled_ = nullptr;
  std::int32_t* winners_ = nullptr;
  float* logits_ = nullptr;
  float* logit_gradient_ = nullptr;
  float* pooled_gradient_ = nullptr;
  float* parameters_ = nullptr;
  float* velocity_ = nullptr;
  float* gradient_ = nullptr;
  Tally* tally_ = nullptr;
  Tally* host_tally_ = nullptr;   // Pinned.
  float* host_logits_ = nullptr;  // Pinned. The logits of the held-out set.
};

// Ends the program with the call, its place and CUDA's text when `result` is an error.
void check(cudaError_t result, const char* what, const char* file, int line);
#define SAMPLE_CHECK(call) ::sample::check((call), #call, __FILE__, __LINE__)

}  // namespace sample
