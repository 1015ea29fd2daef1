// ContextRuntime: the state that the kernels of one CUDA context share at run time: the printf
// buffer, the device heap, and the budget for launches by kernels.
#pragma once

#include "emulated/runtime/device_heap.h"
#include "emulated/runtime/device_output.h"
#include "emulated/runtime/launch_pool.h"

namespace gpurun::emulated {

// Any thread. Must outlive every grid that was launched with it.
class ContextRuntime {
 public:
  DeviceOutput& output() { return output_; }
  DeviceHeap& heap() { return heap_; }
  LaunchPool& launches() { return launches_; }

 private:
  DeviceOutput output_;
  DeviceHeap heap_;
  LaunchPool launches_;
};

}  // namespace gpurun::emulated
