// GridRuntime: the driver calls of the threads of one running grid, and the kernels that they
// launch (CUDA Programming Guide, "CUDA Dynamic Parallelism").
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "emulated/engine/engine.h"
#include "emulated/objects/kernel_launch.h"
#include "emulated/runtime/launch_pool.h"

namespace gpurun::emulated {

// A kernel that a kernel has launched. `launch.code` is not compiled yet.
struct ChildLaunch {
  KernelLaunch launch;
  // Nesting level. A launch by the host is at 0.
  unsigned level = 0;
  LaunchPool::Share parameters;     // Bytes of its parameters.
  LaunchPool::Share launch_counts;  // Outstanding until this object ends.
};

// answer(): any thread. The rest: only while the grid does not run.
//
// The children run after the grid has ended, one after the other in launch order. All streams and
// events of the grid allow that order, because neither can make a launch wait for a later one. No
// kernel can wait for a kernel that it launched. So only the handles of streams and events are
// kept. They belong to the grid.
class GridRuntime final : public DeviceRuntime {
 public:
  // Bound of nesting levels (Programming Guide, "Nesting Depth"). A launch at the end of a grid
  // (cudaStreamTailLaunch) replaces the grid and is at its level.
  static constexpr unsigned kLevelMax = 24;
  // Bounds of what a grid may have at once: streams, events, and buffers without a launch, each.
  static constexpr std::size_t kHandlesMax = 65536;

  // All arguments are borrowed until the grid is done. `module`: the module of its kernel, which
  // finds the kernels that it launches.
  GridRuntime(Context& context, ContextRuntime& runtime,
              const std::shared_ptr<ContextModule>& module, unsigned level);

  Answer answer(DeviceCall call, const std::uint64_t* arguments) override;

  // Pushes the grid's launches onto `waiting`. The last element runs next.
  void take_launches(std::vector<ChildLaunch>* waiting);

 private:
  // A parameter buffer, with the kernel for a launch that names only the buffer.
  struct Buffer {
    ChildLaunch child;
    std::size_t bytes = 0;
    bool has_kernel = false;  // From GetParameterBufferV2.
  };
  enum class Order : std::uint8_t { kInTurn, kAtTheEnd, kNone };

  Answer make_buffer(std::size_t bytes, Buffer buffer);
  Answer parameter_buffer(const std::uint64_t* arguments);
  Answer launch_device(const std::uint64_t* arguments);
  Answer launch_buffer(std::uint64_t address, std::uint64_t stream);
  Answer launch(ChildLaunch child, std::uint64_t stream);
  Answer find_kernel(std::uint64_t address, std::shared_ptr<Function>* function);
  DeviceError check(const KernelLaunch& launch);
  Answer make_handle(std::set<std::uint64_t>* handles, std::uint64_t flags,
                     std::uint64_t flags_needed);
  Answer drop_handle(std::set<std::uint64_t>* handles, std::uint64_t handle);
  // How a launch into this stream is ordered. kNone: there is no such stream.
  Order order_of(std::uint64_t stream);
  bool can_order_events(std::uint64_t stream);
  bool knows_event(std::uint64_t event);
  Answer function_attribute(std::uint64_t attribute, std::uint64_t address);
  Answer device_attribute(std::uint64_t attribute, std::uint64_t device);
  Answer occupancy(const std::uint64_t* arguments);

  Context& context_;
  ContextRuntime& runtime_;
  const std::shared_ptr<ContextModule>& module_;
  const unsigned level_;

  std::mutex mutex_;                                   // Guards what follows.
  std::unordered_map<std::uint64_t, Buffer> buffers_;  // By address.
  std::vector<ChildLaunch> in_turn_;
  std::vector<ChildLaunch> at_the_end_;
  std::set<std::uint64_t> streams_;
  std::set<std::uint64_t> events_;
  std::uint64_t last_handle_;
};

}  // namespace gpurun::emulated
