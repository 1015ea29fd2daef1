// GridRuntime: what the threads of one running grid ask of the driver, and the kernels that they
// launch (CUDA Programming Guide, "CUDA Dynamic Parallelism").
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "server/emulated/engine/engine.h"
#include "server/emulated/objects/launch.h"
#include "server/emulated/runtime/launch_pool.h"

namespace gpurun::emulated {

// A kernel that a kernel has launched; `launch.code` is not compiled yet.
struct ChildLaunch {
  KernelLaunch launch;
  unsigned level = 0;               // Of nesting; what the host launches is at 0.
  LaunchPool::Share parameters;     // Its bytes.
  LaunchPool::Share launch_counts;  // It is outstanding until this object ends.
};

// answer(): any thread. The rest: while the grid does not run.
//
// Its children run when it has ended, one after the other in the order in which they were launched:
// that is an order that all its streams and events allow, because neither can make a launch wait
// for a later one, and no kernel can wait for another that it launched. So of streams and events
// only the handles are kept. They belong to the grid.
class GridRuntime final : public DeviceRuntime {
 public:
  // Levels of nesting (Programming Guide, "Nesting Depth"). What a grid launches at its own end
  // (cudaStreamTailLaunch) takes its place and is at its level.
  static constexpr unsigned kLevelMax = 24;
  // Streams, events and buffers without a launch that a grid may have at once, each.
  static constexpr std::size_t kHandlesMax = 65536;

  // All borrowed until the grid is done. `module`: the one of its kernel, where it finds others.
  GridRuntime(Context& context, ContextRuntime& runtime,
              const std::shared_ptr<ContextModule>& module, unsigned level);

  Answer answer(DeviceCall call, const std::uint64_t* arguments) override;

  // Puts what the grid has launched on top of `waiting`, whose last is the next to run.
  void take_launches(std::vector<ChildLaunch>* waiting);

 private:
  // A parameter buffer, with what a launch that names it alone launches.
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
  // How a launch into this stream is ordered; kNone: there is no such stream.
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
