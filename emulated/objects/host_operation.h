// HostOperation: a function of the program in a stream or graph (cuLaunchHostFunc).
#pragma once

#include "emulated/objects/operation.h"
#include "emulated/objects/thread_state.h"

namespace gpurun::emulated {

// The function runs on a runner thread in stream order. It may make no CUDA call.
class HostOperation final : public Operation {
 public:
  HostOperation(CUhostFn called, void* data) : function_(called), user_data_(data) {}
  CUresult run(Context&) override {
    ThreadState& thread = thread_state();
    thread.in_callback = true;
    function_(user_data_);
    thread.in_callback = false;
    return CUDA_SUCCESS;
  }
  CUgraphNodeType graph_node_type() const override { return CU_GRAPH_NODE_TYPE_HOST; }
  CUhostFn function() const { return function_; }
  void* user_data() const { return user_data_; }

 private:
  const CUhostFn function_;
  void* const user_data_;
};

}  // namespace gpurun::emulated
