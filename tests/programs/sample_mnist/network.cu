// Network: the order of the launches in a training step, and the waits between streams.
#include "network.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels.cuh"

namespace sample {
namespace {

constexpr int kBlock = 128;

int blocks_for(int threads) { return (threads + kBlock - 1) / kBlock; }

template <typename T>
std::vector<T> read(const T* device, std::size_t count) {
  std::vector<T> host(count);
  SAMPLE_CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

}  // namespace

void check(cudaError_t result, const char* what, const char* file, int line) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s: %s (%s)\n", file, line, what, cudaGetErrorString(result),
               cudaGetErrorName(result));
  std::exit(1);
}

template <typename T>
T* Network::allocate(std::size_t count) {
  void* memory = nullptr;
  SAMPLE_CHECK(cudaMalloc(&memory, count * sizeof(T)));
  SAMPLE_CHECK(cudaMemsetAsync(memory, 0, count * sizeof(T), main_));
  allocations_.push_back(memory);
  return static_cast<T*>(memory);
}

template <typename... Parameters, typename... Arguments>
void Network::launch(const char* name, void (*kernel)(Parameters...), dim3 grid, int block,
                     int shared_bytes, cudaStream_t stream, Arguments... arguments) {
  if (skipped_kernel_ == name) return;
  kernel<<<grid, block, static_cast<std::size_t>(shared_bytes), stream>>>(arguments...);
  check(cudaGetLastError(), name, __FILE__, __LINE__);
}
#define SAMPLE_LAUNCH(kernel, ...) launch(#kernel, kernel, __VA_ARGS__)

Network::Network(const Shape& shape, const Digits& training, const Digits& held_out,
                 const std::vector<float>& parameters, std::string skipped_kernel)
    : shape_(shape), skipped_kernel_(std::move(skipped_kernel)) {
  for (cudaStream_t* stream : {&main_, &side_, &copy_}) {
    SAMPLE_CHECK(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  }
  SAMPLE_CHECK(cudaEventCreateWithFlags(&forward_done_, cudaEventDisableTiming));
  SAMPLE_CHECK(cudaEventCreateWithFlags(&side_done_, cudaEventDisableTiming));
  for (Slot& slot : slots_) {
    SAMPLE_CHECK(cudaMallocHost(&slot.host_order, shape.batch * sizeof(std::int32_t)));
    slot.order = allocate<std::int32_t>(shape.batch);
    SAMPLE_CHECK(cudaEventCreateWithFlags(&slot.uploaded, cudaEventDisableTiming));
    SAMPLE_CHECK(cudaEventCreateWithFlags(&slot.used, cudaEventDisableTiming));
  }
  upload(training, &training_);
  upload(held_out, &held_out_);
  images_ = allocate<float>(shape.batch * shape.pixels());
  labels_ = allocate<std::int32_t>(shape.batch);
  convolved_ = allocate<float>(shape.convolved_floats());
  pooled_ = allocate<float>(shape.pooled_floats());
  winners_ = allocate<std::int32_t>(shape.pooled_floats());
  logits_ = allocate<float>(shape.batch * kClasses);
  logit_gradient_ = allocate<float>(shape.batch * kClasses);
  pooled_gradient_ = allocate<float>(shape.pooled_floats());
  parameters_ = allocate<float>(shape.parameter_count());
  velocity_ = allocate<float>(shape.parameter_count());
  gradient_ = allocate<float>(shape.parameter_count());
  tally_ = allocate<Tally>(1);
  SAMPLE_CHECK(cudaMallocHost(&host_tally_, sizeof(Tally)));
  std::memset(host_tally_, 0, sizeof(Tally));
  SAMPLE_CHECK(cudaMallocHost(&host_logits_, held_out.count() * kClasses * sizeof(float)));
  SAMPLE_CHECK(cudaStreamSynchronize(main_));
  SAMPLE_CHECK(cudaMemcpy(parameters_, parameters.data(), parameters.size() * sizeof(float),
                          cudaMemcpyHostToDevice));
}

Network::~Network() {
  cudaDeviceSynchronize();
  for (void* memory : allocations_) cudaFree(memory);
  for (const Slot& slot : slots_) {
    cudaFreeHost(slot.host_order);
    cudaEventDestroy(slot.uploaded);
    cudaEventDestroy(slot.used);
  }
  cudaFreeHost(host_tally_);
  cudaFreeHost(host_logits_);
  for (const cudaEvent_t event : {forward_done_, side_done_}) cudaEventDestroy(event);
  for (const cudaStream_t stream : {main_, side_, copy_}) cudaStreamDestroy(stream);
}

void Network::upload(const Digits& digits, Set* set) {
  set->count = digits.count();
  set->pixels = allocate<std::uint8_t>(digits.pixels.size());
  set->labels = allocate<std::uint8_t>(digits.labels.size());
  SAMPLE_CHECK(cudaStreamSynchronize(main_));  // The buffers' zeros have been written.
  SAMPLE_CHECK(
      cudaMemcpy(set->pixels, digits.pixels.data(), digits.pixels.size(), cudaMemcpyHostToDevice));
  SAMPLE_CHECK(
      cudaMemcpy(set->labels, digits.labels.data(), digits.labels.size(), cudaMemcpyHostToDevice));
}

Network::Slot& Network::fill_slot(const std::int32_t* order) {
  Slot& slot = slots_[next_slot_];
  next_slot_ = 1 - next_slot_;
  SAMPLE_CHECK(cudaEventSynchronize(slot.uploaded));  // Its previous upload, two steps ago.
  std::memcpy(slot.host_order, order, shape_.batch * sizeof(std::int32_t));
  SAMPLE_CHECK(cudaStreamWaitEvent(copy_, slot.used, 0));
  SAMPLE_CHECK(cudaMemcpyAsync(slot.order, slot.host_order, shape_.batch * sizeof(std::int32_t),
                               cudaMemcpyHostToDevice, copy_));
  SAMPLE_CHECK(cudaEventRecord(slot.uploaded, copy_));
  return slot;
}

void Network::forward(const Set& set, Slot& slot) {
  const int batch = shape_.batch;
  SAMPLE_CHECK(cudaStreamWaitEvent(main_, slot.uploaded, 0));
  SAMPLE_LAUNCH(gather_batch, dim3(batch), 64, 0, main_, set.pixels, set.labels, slot.order, shape_,
                images_, labels_);
  SAMPLE_CHECK(cudaEventRecord(slot.used, main_));
  const int bordered_bytes = (shape_.width + 2) * (shape_.height + 2) * int{sizeof(float)};
  SAMPLE_LAUNCH(convolve_relu, dim3(batch, kFilters), 64, bordered_bytes, main_, images_,
                parameters_, shape_, convolved_);
  SAMPLE_LAUNCH(pool_max, dim3(blocks_for(shape_.pooled_floats())), kBlock, 0, main_, convolved_,
                shape_, pooled_, winners_);
  SAMPLE_LAUNCH(dense_forward, dim3(batch), kBlock, 0, main_, pooled_, parameters_, shape_,
                logits_);
  SAMPLE_LAUNCH(softmax_loss, dim3(blocks_for(batch)), kBlock, 0, main_, logits_, labels_, shape_,
                logit_gradient_, &tally_->loss_sum, &tally_->correct);
}

void Network::backward() {
  SAMPLE_CHECK(cudaEventRecord(forward_done_, main_));
  SAMPLE_CHECK(cudaStreamWaitEvent(side_, forward_done_, 0));
  SAMPLE_LAUNCH(dense_backward_weights, dim3(blocks_for(shape_.features() + 1), kClasses), kBlock,
                0, side_, pooled_, logit_gradient_, shape_, gradient_);
  SAMPLE_CHECK(cudaEventRecord(side_done_, side_));
  SAMPLE_LAUNCH(dense_backward_input, dim3(blocks_for(shape_.pooled_floats())), kBlock, 0, main_,
                pooled_, parameters_, logit_gradient_, shape_, pooled_gradient_);
  SAMPLE_LAUNCH(convolve_backward, dim3(shape_.batch, kFilters), 32, 0, main_, images_,
                pooled_gradient_, winners_, shape_, gradient_);
  SAMPLE_CHECK(cudaStreamWaitEvent(main_, side_done_, 0));
}

void Network::train(const std::int32_t* order, float learning_rate, float momentum,
                    bool clear_gradient) {
  forward(training_, fill_slot(order));
  backward();
  SAMPLE_LAUNCH(update_parameters, dim3(blocks_for(shape_.parameter_count())), kBlock, 0, main_,
                parameters_, velocity_, gradient_, shape_.parameter_count(), learning_rate,
                momentum, clear_gradient);
  images_since_read_ += shape_.batch;
}

Score Network::read_training_score() {
  const int images = images_since_read_;
  images_since_read_ = 0;
  SAMPLE_CHECK(cudaMemcpyAsync(host_tally_, tally_, sizeof(Tally), cudaMemcpyDeviceToHost, main_));
  SAMPLE_CHECK(cudaMemsetAsync(tally_, 0, sizeof(Tally), main_));
  SAMPLE_CHECK(cudaStreamSynchronize(main_));
  const float count = static_cast<float>(images > 0 ? images : 1);
  return {host_tally_->loss_sum / count, static_cast<float>(host_tally_->correct) / count};
}

float Network::evaluate(const Digits& digits) {
  std::vector<std::int32_t> order(shape_.batch);
  const int batch_logits = shape_.batch * kClasses;
  int images = 0;
  for (; images + shape_.batch <= held_out_.count; images += shape_.batch) {
    for (int i = 0; i < shape_.batch; ++i) order[i] = images + i;
    forward(held_out_, fill_slot(order.data()));
    SAMPLE_CHECK(cudaMemcpyAsync(host_logits_ + images * kClasses, logits_,
                                 batch_logits * sizeof(float), cudaMemcpyDeviceToHost, main_));
  }
  SAMPLE_CHECK(cudaStreamSynchronize(main_));
  int correct = 0;
  for (int n = 0; n < images; ++n) {
    const float* logits = host_logits_ + n * kClasses;
    const auto best = std::max_element(logits, logits + kClasses) - logits;
    if (best == digits.labels[n]) ++correct;
  }
  return static_cast<float>(correct) / static_cast<float>(images);
}

StepValues Network::read_step() {
  SAMPLE_CHECK(cudaStreamSynchronize(main_));
  StepValues values;
  values.images = read(images_, shape_.batch * shape_.pixels());
  values.convolved = read(convolved_, shape_.convolved_floats());
  values.pooled = read(pooled_, shape_.pooled_floats());
  values.logits = read(logits_, shape_.batch * kClasses);
  values.gradient = read(gradient_, shape_.parameter_count());
  values.velocity = read(velocity_, shape_.parameter_count());
  values.parameters = read(parameters_, shape_.parameter_count());
  const Tally tally = read(tally_, 1)[0];
  values.loss_sum = tally.loss_sum;
  values.correct = tally.correct;
  return values;
}

}  // namespace sample
