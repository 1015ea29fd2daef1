// KernelLaunch: a kernel with everything that its launch has fixed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulated/engine/engine.h"
#include "emulated/objects/context_module.h"

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

}  // namespace gpurun::emulated
