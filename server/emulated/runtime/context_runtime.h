// ContextRuntime: what the kernels of one CUDA context share at run time: the printf buffer and the
// device heap.
#pragma once

#include "server/emulated/runtime/device_heap.h"
#include "server/emulated/runtime/device_output.h"

namespace gpurun::emulated {

// Any thread. Outlives every grid that was launched with it.
class ContextRuntime {
 public:
  DeviceOutput& output() { return output_; }
  DeviceHeap& heap() { return heap_; }

 private:
  DeviceOutput output_;
  DeviceHeap heap_;
};

}  // namespace gpurun::emulated
