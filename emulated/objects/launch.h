// LaunchOperation: the launch of a kernel as an operation of a stream.
#pragma once

#include <mutex>
#include <vector>

#include "emulated/objects/kernel_launch.h"
#include "emulated/objects/operation.h"

namespace gpurun::emulated {

class LaunchOperation final : public Operation {
 public:
  explicit LaunchOperation(KernelLaunch launch);
  CUresult run(Context& context) override;
  CUgraphNodeType graph_node_type() const override { return CU_GRAPH_NODE_TYPE_KERNEL; }
  const KernelLaunch& launch() const { return launch_; }
  // One pointer for each parameter, as a launch takes them. Null without parameters.
  void** parameter_pointers() const;

 private:
  const KernelLaunch launch_;
  // Made at the first call, because few programs need them.
  mutable std::once_flag pointers_made_;
  mutable std::vector<void*> pointers_;
};

}  // namespace gpurun::emulated
