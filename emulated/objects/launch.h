// LaunchOperation: a kernel with everything that its launch has fixed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "emulated/engine/engine.h"
#include "emulated/objects/context_module.h"
#include "emulated/objects/operation.h"

namespace gpurun::emulated {

struct KernelLaunch {
  std::shared_ptr<ContextModule> module;  // Keeps `function` and `code` alive.
  std::shared_ptr<Function> function;
  CompiledKernel code;
  Extent grid;
  Extent block;
  Extent cluster;
  std::uint32_t dynamic_shared_bytes = 0;
  bool cooperative = false;
  struct alignas(16) Chunk {
    std::byte bytes[16];
  };
  std::vector<Chunk> parameters;  // As KernelAttributes lays them out.
};

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
