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

  // Blocks that wait for each other need threads that can wait, so the kernel has no fast form.
  bool blocks_are_alone() const { return !cooperative && cluster.count() == 1; }
  // For Module::compile().
  std::uint64_t threads() const {
    const std::uint64_t blocks = grid.count();
    const bool countable = blocks <= kAnyLaunch / kBlockThreadsMax;
    return blocks_are_alone() && countable ? blocks * block.count() : kAnyLaunch;
  }
};

}  // namespace gpurun::emulated
