// The functions that compiled code calls, as C functions in one table (runtime/device_abi.h).
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>

#include "emulated/engine/block.h"
#include "emulated/engine/device_calls.h"
#include "emulated/engine/engine.h"
#include "emulated/engine/grid.h"
#include "emulated/runtime/context_runtime.h"
#include "emulated/runtime/print.h"

namespace gpurun::emulated {

namespace {

Fiber& fiber_of(ThreadContext* thread) { return *static_cast<Fiber*>(thread->engine); }
Block& block_of(ThreadContext* thread) { return *static_cast<Block*>(thread->block->engine); }
ContextRuntime* context_of(ThreadContext* thread) {
  return block_of(thread).grid().request.context;
}

void barrier_sync(ThreadContext* thread, std::uint32_t id, std::uint32_t count) {
  block_of(thread).barrier_sync(fiber_of(thread), id, count);
}

void barrier_arrive(ThreadContext* thread, std::uint32_t id, std::uint32_t count) {
  block_of(thread).barrier_arrive(id, count);
}

std::uint32_t barrier_reduce(ThreadContext* thread, std::uint32_t id, std::uint32_t count,
                             std::uint32_t reduction, std::uint32_t value) {
  return block_of(thread).barrier_reduce(fiber_of(thread), id, count,
                                         static_cast<BarrierReduction>(reduction), value != 0);
}

void cluster_arrive(ThreadContext* thread) { block_of(thread).cluster_arrive(fiber_of(thread)); }

void cluster_wait(ThreadContext* thread) { block_of(thread).cluster_wait(fiber_of(thread)); }

void warp(ThreadContext* thread, std::uint32_t, std::uint32_t mask, WarpFunction function,
          const std::uint32_t* in, std::uint32_t* out) {
  block_of(thread).warp(fiber_of(thread), mask, function, in, out);
}

std::uint64_t exchange(ThreadContext* thread, std::uint32_t, std::uint32_t mask,
                       WarpFunction function, std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const std::uint32_t in[kExchangeInputs] = {a, b, c};
  std::uint32_t out[kExchangeResults] = {};
  block_of(thread).warp(fiber_of(thread), mask, function, in, out);
  return out[0] | std::uint64_t{out[1]} << 32;
}

std::uint32_t active_mask(ThreadContext* thread, const CodePosition* position) {
  return block_of(thread).active_mask(fiber_of(thread), *position);
}

void step_together(ThreadContext* thread, const CodePosition* position, std::uint32_t is_load) {
  block_of(thread).step_together(fiber_of(thread), *position, is_load != 0);
}

void yield(ThreadContext* thread) { block_of(thread).yield(fiber_of(thread)); }

void sleep(ThreadContext* thread, std::uint32_t) { block_of(thread).sleep(fiber_of(thread)); }

void exit_thread(ThreadContext* thread) { block_of(thread).exit(fiber_of(thread)); }

void trap(ThreadContext* thread, std::uint32_t site) {
  block_of(thread).fail(fiber_of(thread), kGridLaunchFailed,
                        "trap instruction (site " + std::to_string(site) + ")");
}

const char* describe(DeviceFault fault) {
  switch (fault) {
    case DeviceFault::kNoTexture:
      return "a fetch from a texture object that is not there (never made, or destroyed)";
    case DeviceFault::kLinearTexture:
      return "a fetch by floating-point coordinates from a texture object of linear memory";
    case DeviceFault::kNoSurface:
      return "an access to a surface object that is not there (never made, or destroyed)";
    case DeviceFault::kOutsideSurface:
      return "an access outside of a surface";
    case DeviceFault::kNoMulticast:
      return "a multimem instruction, on a device without multicast objects";
    case DeviceFault::kNone:
      break;
  }
  return "an access to an object of the driver";
}

void object_fault(ThreadContext* thread, std::uint32_t fault, std::uint64_t handle) {
  char number[32];
  std::snprintf(number, sizeof number, ", handle 0x%llx", static_cast<unsigned long long>(handle));
  block_of(thread).fail(fiber_of(thread), kGridLaunchFailed,
                        std::string(describe(static_cast<DeviceFault>(fault))) + number);
}

std::string text_at(std::uint64_t address) {
  return address == 0 ? std::string("?") : bounded_device_string(address);
}

std::string coordinates(const std::uint32_t* id) {
  return "[" + std::to_string(id[0]) + "," + std::to_string(id[1]) + "," + std::to_string(id[2]) +
         "]";
}

// Prints the line that CUDA prints (CUDA C++ Programming Guide, "Assertion"), and returns the
// result's message. It is separate from assert_fail(), because that one leaves without running
// destructors.
std::string report_assertion(ThreadContext* thread, std::uint64_t message, std::uint64_t file,
                             std::uint32_t line, std::uint64_t function) {
  const std::string condition = text_at(message);
  std::string text = text_at(file) + ":" + std::to_string(line) + ": " + text_at(function) +
                     ": block: " + coordinates(thread->block->block_id) +
                     ", thread: " + coordinates(thread->thread_id) + " Assertion `" + condition +
                     "` failed.\n";
  if (ContextRuntime* context = context_of(thread)) {
    context->output().append(DeviceOutput::Target::kStderr, std::move(text));
  }
  return "assertion `" + condition + "` failed";
}

void assert_fail(ThreadContext* thread, std::uint64_t message, std::uint64_t file,
                 std::uint32_t line, std::uint64_t function, std::uint64_t) {
  block_of(thread).fail_after_warp(fiber_of(thread), kGridAssert,
                                   report_assertion(thread, message, file, line, function));
}

std::int32_t print(ThreadContext* thread, std::uint64_t format, std::uint64_t arguments) {
  ContextRuntime* context = context_of(thread);
  if (format == 0 || context == nullptr) return -1;
  std::string text;
  const int count = format_device_print(reinterpret_cast<const char*>(format),
                                        reinterpret_cast<const std::uint8_t*>(arguments), &text);
  context->output().append(DeviceOutput::Target::kStdout, std::move(text));
  return count;
}

std::uint64_t allocate(ThreadContext* thread, std::uint64_t bytes) {
  ContextRuntime* context = context_of(thread);
  return context == nullptr ? 0 : context->heap().allocate(bytes);
}

void release(ThreadContext* thread, std::uint64_t address) {
  ContextRuntime* context = context_of(thread);
  if (context == nullptr || context->heap().release(address)) return;
  // Undefined in CUDA ("Dynamic global memory allocation"). NVIDIA's driver ends the kernel.
  block_of(thread).fail(fiber_of(thread), kGridLaunchFailed,
                        "free() of an address that malloc() did not return");
}

std::uint64_t global_timer(ThreadContext*) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

constexpr std::uint32_t kGroupOk = 0;
constexpr std::uint32_t kGroupInvalid = 1;  // cudaErrorInvalidValue
constexpr std::uint32_t kScopeGrid = 1;     // cudaCGScopeGrid

std::uint64_t group_handle(ThreadContext* thread, std::uint32_t scope) {
  return scope == kScopeGrid ? thread->block->grid_workspace : 0;
}

bool is_grid(ThreadContext* thread, std::uint64_t handle) {
  return handle != 0 && handle == thread->block->grid_workspace;
}

// The word that the barrier of cooperative_groups' own PTX flips too, and in the same way
// (cooperative_groups/details/sync.h, sync_grids). A kernel may use both.
std::uint32_t group_sync(ThreadContext* thread, std::uint64_t handle, std::uint32_t) {
  constexpr std::uint32_t kTurn = 0x8000'0000;
  if (!is_grid(thread, handle)) return kGroupInvalid;
  const BlockContext& block = *thread->block;
  barrier_sync(thread, 0, 0);
  if (thread->thread_linear == 0) {
    const std::uint32_t* id = block.block_id;
    const std::uint32_t* dim = block.grid_dim;
    const bool is_first = id[0] == 0 && id[1] == 0 && id[2] == 0;
    const std::uint32_t step = is_first ? kTurn - (dim[0] * dim[1] * dim[2] - 1) : 1;
    std::atomic_ref<std::uint32_t> arrived(reinterpret_cast<std::uint32_t*>(handle)[1]);
    const std::uint32_t before = arrived.fetch_add(step);
    while (((before ^ arrived.load()) & kTurn) == 0) yield(thread);
  }
  barrier_sync(thread, 0, 0);
  return kGroupOk;
}

void put(std::uint64_t place, std::uint32_t value) {
  if (place != 0) *reinterpret_cast<std::uint32_t*>(place) = value;
}

std::uint32_t block_threads(const BlockContext& block) {
  return block.block_dim[0] * block.block_dim[1] * block.block_dim[2];
}

std::uint32_t group_size(ThreadContext* thread, std::uint64_t threads, std::uint64_t groups,
                         std::uint64_t handle) {
  if (!is_grid(thread, handle)) return kGroupInvalid;
  const std::uint32_t* dim = thread->block->grid_dim;
  put(threads, dim[0] * dim[1] * dim[2] * block_threads(*thread->block));
  put(groups, 1);
  return kGroupOk;
}

std::uint32_t group_rank(ThreadContext* thread, std::uint64_t thread_rank, std::uint64_t group_rank,
                         std::uint64_t handle) {
  if (!is_grid(thread, handle)) return kGroupInvalid;
  const std::uint32_t* id = thread->block->block_id;
  const std::uint32_t* dim = thread->block->grid_dim;
  const std::uint32_t block = id[0] + dim[0] * (id[1] + dim[1] * id[2]);
  put(thread_rank, block * block_threads(*thread->block) + thread->thread_linear);
  put(group_rank, 0);
  return kGroupOk;
}

constexpr RuntimeFunctions kFunctions = {
    .barrier_sync = barrier_sync,
    .barrier_arrive = barrier_arrive,
    .barrier_reduce = barrier_reduce,
    .cluster_arrive = cluster_arrive,
    .cluster_wait = cluster_wait,
    .warp = warp,
    .exchange = exchange,
    .active_mask = active_mask,
    .step_together = step_together,
    .yield = yield,
    .sleep = sleep,
    .exit = exit_thread,
    .trap = trap,
    .object_fault = object_fault,
    .assert_fail = assert_fail,
    .print = print,
    .allocate = allocate,
    .release = release,
    .group_handle = group_handle,
    .group_sync = group_sync,
    .group_size = group_size,
    .group_rank = group_rank,
    .device_call = device_call,
    .global_timer = global_timer,
    .resolve_function = nullptr,
};

}  // namespace

const RuntimeFunctions& runtime_functions() { return kFunctions; }

}  // namespace gpurun::emulated
