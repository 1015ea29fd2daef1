// Driver test: the parts that driver-API programs about order share. They are a context with its
// kernels, a host function that blocks until it is released, and a time limit.
#pragma once

#include <cuda.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "tests/support/cuda.h"

// Makes a hang a quick failure.
inline void end_after(unsigned seconds) { alarm(seconds); }

struct Device {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction fill, wait_for, linger, pass_on;

  explicit Device(const char* image, int ordinal = 0) {
    MUST(cuInit(0));
    MUST(cuDeviceGet(&device, ordinal));
    MUST(cuCtxCreate(&context, nullptr, 0, device));
    load(image);
  }
  // Loads into the current context.
  void load(const char* image) {
    MUST(cuModuleLoad(&module, image));
    MUST(cuModuleGetFunction(&fill, module, "fill"));
    MUST(cuModuleGetFunction(&wait_for, module, "wait_for"));
    MUST(cuModuleGetFunction(&linger, module, "linger"));
    MUST(cuModuleGetFunction(&pass_on, module, "pass_on"));
  }

  static CUstream stream(unsigned flags) {
    CUstream made;
    MUST(cuStreamCreate(&made, flags));
    return made;
  }
  static CUevent event(unsigned flags = CU_EVENT_DEFAULT) {
    CUevent made;
    MUST(cuEventCreate(&made, flags));
    return made;
  }
  static CUdeviceptr memory(size_t bytes) {
    CUdeviceptr made;
    MUST(cuMemAlloc(&made, bytes));
    return made;
  }
  static unsigned* pinned(size_t bytes) {
    void* made;
    MUST(cuMemHostAlloc(&made, bytes, 0));
    return static_cast<unsigned*>(made);
  }

  // Writes `value` to `to` after about a tenth of a second.
  void launch_linger(CUstream in, CUdeviceptr to, unsigned value) const {
    unsigned turns = 50'000'000;
    void* arguments[] = {&turns, &to, &value};
    MUST(cuLaunchKernel(linger, 1, 1, 1, 1, 1, 1, 0, in, arguments, nullptr));
  }
  // Runs for about a second, longer than a waiter takes to detect the death of another process.
  void launch_long(CUstream in, CUdeviceptr to) const {
    unsigned turns = 4'000'000'000, value = 0;
    void* arguments[] = {&turns, &to, &value};
    for (int i = 0; i < 4; ++i) {
      MUST(cuLaunchKernel(linger, 1, 1, 1, 1, 1, 1, 0, in, arguments, nullptr));
    }
  }
  // Runs until `flag` is not 0, then stores it in `seen`.
  void launch_wait(CUstream in, CUdeviceptr flag, CUdeviceptr seen) const {
    void* arguments[] = {&flag, &seen};
    MUST(cuLaunchKernel(wait_for, 1, 1, 1, 1, 1, 1, 0, in, arguments, nullptr));
  }
  void launch_fill(CUstream in, CUdeviceptr to, unsigned count, unsigned value) const {
    void* arguments[] = {&to, &count, &value};
    MUST(cuLaunchKernel(fill, 1, 1, 1, count, 1, 1, 0, in, arguments, nullptr));
  }
  static unsigned read(CUdeviceptr from) {
    unsigned value = 0;
    MUST(cuMemcpyDtoH(&value, from, 4));
    return value;
  }
};

// A host function that blocks until let_go().
class Gate {
 public:
  void stand_in(CUstream stream) { MUST(cuLaunchHostFunc(stream, &Gate::run, this)); }
  void stand_in(CUgraph graph) {
    const CUDA_HOST_NODE_PARAMS host = {&Gate::run, this};
    CUgraphNode node;
    MUST(cuGraphAddHostNode(&node, graph, nullptr, 0, &host));
  }
  void let_go() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void await_begin() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return begun_; });
  }

 private:
  static void CUDA_CB run(void* of) {
    auto* gate = static_cast<Gate*>(of);
    std::unique_lock<std::mutex> lock(gate->mutex_);
    gate->begun_ = true;
    gate->changed_.notify_all();
    gate->changed_.wait(lock, [gate] { return gate->open_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false, begun_ = false;
};
