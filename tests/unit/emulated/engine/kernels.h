// Kernels: hand-written kernels for the engine's tests, as compiled PTX would be, in C++.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "emulated/engine/engine.h"
#include "emulated/runtime/context_runtime.h"

namespace gpurun::emulated::test {

inline const RuntimeFunctions& rt() { return runtime_functions(); }

template <typename P>
const P& params(const ThreadContext* thread) {
  return *reinterpret_cast<const P*>(thread->block->params);
}

inline std::uint32_t block_index(const ThreadContext* thread) {
  const BlockContext& b = *thread->block;
  return b.block_id[0] + b.grid_dim[0] * (b.block_id[1] + b.grid_dim[1] * b.block_id[2]);
}
inline std::uint32_t block_threads(const ThreadContext* thread) {
  const BlockContext& b = *thread->block;
  return b.block_dim[0] * b.block_dim[1] * b.block_dim[2];
}
inline std::uint32_t global_index(const ThreadContext* thread) {
  return block_index(thread) * block_threads(thread) + thread->thread_linear;
}

// As the translator's code for a polling load.
inline void poll(ThreadContext* thread) {
  if (--thread->poll_budget <= 0) rt().yield(thread);
}
template <typename T>
void spin_until(ThreadContext* thread, const std::atomic<T>& word, T value) {
  while (word.load(std::memory_order_acquire) < value) poll(thread);
}

inline std::unique_ptr<Engine> make_engine(int threads, EngineOptions options = {}) {
  options.threads = threads;
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return *std::move(engine);
}

template <typename P>
LaunchRequest launch(KernelFunction function, Extent grid, Extent block, const P* parameters) {
  LaunchRequest request;
  request.function = function;
  request.name = "kernel_of_test";
  request.grid = grid;
  request.block = block;
  request.params = parameters;
  request.param_bytes = sizeof(P);
  return request;
}

// Counts the grids that have finished.
class Finish {
 public:
  Engine::Done expect_ok();
  Engine::Done keep();
  void wait(int count);
  const std::vector<GridResult>& results() const { return results_; }

 private:
  std::mutex mutex_;
  std::condition_variable cv_;
  std::vector<GridResult> results_;
};

inline Engine::Done Finish::keep() {
  return [this](const GridResult& result) {
    std::lock_guard lock(mutex_);
    results_.push_back(result);
    cv_.notify_all();
  };
}

inline Engine::Done Finish::expect_ok() {
  return [keep = keep()](const GridResult& result) {
    EXPECT_EQ(result.code, kGridOk) << result.message;
    keep(result);
  };
}

inline void Finish::wait(int count) {
  std::unique_lock lock(mutex_);
  ASSERT_TRUE(cv_.wait_for(lock, std::chrono::seconds(30), [&] {
    return results_.size() >= static_cast<std::size_t>(count);
  })) << "a grid did not finish";
}

}  // namespace gpurun::emulated::test
