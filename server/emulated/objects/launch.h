// LaunchOperation: a kernel with everything that its launch fixed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/emulated/engine/engine.h"
#include "server/emulated/objects/context_module.h"
#include "server/emulated/objects/operation.h"

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
  explicit LaunchOperation(KernelLaunch launch) : launch_(std::move(launch)) {}
  CUresult run(Context& context) override;
  const KernelLaunch& launch() const { return launch_; }

 private:
  const KernelLaunch launch_;
};

}  // namespace gpurun::emulated
