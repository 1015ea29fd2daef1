// Engine: runs the grids of one emulated device on a pool of host threads. It takes compiled
// kernels (runtime/device_abi.h) and launch dimensions. It knows no PTX, no streams and no CUDA
// handles.
//
// What it promises
// - Blocks start in index order. One host thread at a time runs a block, but a waiting block may
//   move between threads.
// - Every grid makes progress, whatever the number of pool threads. A kernel may wait for another
//   grid, for a block that has started, or for memory that the host changes. It then yields at its
//   polling loads (RuntimeFunctions::yield).
// - Blocks that wait for blocks of their grid that have not started get them, up to
//   `resident_threads`. The blocks of a cooperative grid are all resident at once.
// - A kernel that faults ends its grid with a result, never the process. Not detected: a wild
//   access that hits mapped memory of this process that is not device memory.
// - A block with threads that all wait for something that cannot happen ends its grid with
//   launch-timeout (702). A log line names kernel, block and barrier.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "emulated/runtime/device_abi.h"

namespace gpurun::emulated {

class ContextRuntime;  // emulated/runtime/context_runtime.h: printf buffer and heap.

// CUresult codes with which a grid can end (CUDA Driver API, "Data types used by CUDA driver").
inline constexpr int kGridOk = 0;
inline constexpr int kGridOutOfMemory = 2;           // Host memory for stacks ran out.
inline constexpr int kGridIllegalAddress = 700;      // Segmentation or bus fault.
inline constexpr int kGridLaunchTimeout = 702;       // Deadlock, watchdog kill.
inline constexpr int kGridAssert = 710;              // __assertfail
inline constexpr int kGridHardwareStackError = 714;  // A thread ran over its stack.
inline constexpr int kGridIllegalInstruction = 715;  // SIGILL inside device code.
inline constexpr int kGridMisalignedAddress = 716;   // SIGBUS for alignment.
inline constexpr int kGridLaunchFailed = 719;        // trap, and every other exception.

// The results of a DeviceCall (device_abi.h): the numbers that libcudadevrt's PTX translates to
// cudaErrors (its table cudartErrorCnpMap).
enum class DeviceError : std::uint32_t {
  kNone = 0,
  kInvalidValue = 1,
  kInvalidDevice = 3,
  kOutOfMemory = 4,
  kMaxDepthExceeded = 5,
  kOutOfResources = 6,
  kInvalidConfiguration = 7,
  kPendingCountExceeded = 12,
  kUnsupportedLimit = 13,
  kInvalidClusterSize = 14,
};

// The driver as the threads of one grid see it: launches from kernels, and related queries. Any
// thread, also on a CUDA thread's small stack. It must not wait for the grid or touch device
// memory.
class DeviceRuntime {
 public:
  struct Answer {
    DeviceError error = DeviceError::kNone;
    // Not 0: the grid ends with this code, and `error` and `value` are ignored.
    int grid_error = 0;
    std::uint64_t value = 0;  // The value that the call returns or stores.
  };
  virtual ~DeviceRuntime() = default;
  // All calls except those about the last error. `arguments` as in RuntimeFunctions::device_call,
  // except that the dim3 values that LaunchDevice points at replace the pointers, three words each.
  virtual Answer answer(DeviceCall call, const std::uint64_t* arguments) = 0;
};

// A grid from the host together with all grids that it and its descendants launch, which run one
// after the other. It changes only while none of them runs, except for `reports`, which the engine
// writes.
struct GridFamily {
  std::string_view root;  // The host's kernel.
  std::chrono::steady_clock::time_point started;
  // Grids of it that kernels have launched and that have started.
  std::uint64_t launched = 0;
  std::uint32_t reports = 0;  // Watchdog periods that were reported.
};

struct Extent {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

// What to run. Everything that it points at is borrowed until the grid is done.
struct LaunchRequest {
  KernelFunction function = nullptr;
  std::string_view name;  // For messages.
  Extent grid;            // Every extent at least 1. At most 2^31 - 1, 65535, 65535.
  Extent block;           // At most 1024 threads.
  Extent cluster;         // Blocks of a cluster start together. Divides `grid`.
  std::uint32_t static_shared_bytes = 0;
  std::uint32_t dynamic_shared_bytes = 0;
  // Stack of one thread for compiled code: CompiledKernel::stack_bytes, plus the context's stack
  // limit when it is recursive. The engine adds what the run-time functions need.
  std::uint32_t stack_bytes = 0;
  bool needs_fibers = true;  // CompiledKernel::needs_fibers
  // The kernel's fast form, which runs instead of `function`. May be null. Not for cooperative
  // launches.
  const RegionProgram* regions = nullptr;
  bool cooperative = false;
  const void* params = nullptr;  // 16-aligned.
  std::uint32_t param_bytes = 0;
  // May be null. Then printf and malloc fail in the kernel.
  ContextRuntime* context = nullptr;
  DeviceRuntime* device_runtime =
      nullptr;  // May be null. Then each DeviceCall fails as an invalid value.
  // May be null. The watchdog counts from its start.
  GridFamily* family = nullptr;
};

// How a grid ended. The first failure counts. `block` and `thread` say where it happened.
struct GridResult {
  int code = kGridOk;
  std::string kernel;   // Its name. Empty on success.
  std::string message;  // One sentence without the kernel's name. Empty on success.
  Extent block{0, 0, 0};
  Extent thread{0, 0, 0};
  std::uint64_t address = 0;  // For faults: the address that was touched.
};

struct EngineOptions {
  int threads = 0;  // Pool threads. 0: one per processor that this process may use.
  std::uint32_t sm_count = 8;
  // Bound of the resident threads of one non-cooperative grid (sm_count * threads per SM).
  std::uint32_t resident_threads = 8 * 1536;
  // A grid that runs longer than this is reported by name, and again after each further period. 0:
  // never.
  std::uint32_t watchdog_ms = 60000;
  bool watchdog_kills = false;  // A reported grid ends with kGridLaunchTimeout.
};

struct EngineCounters {
  std::uint64_t grids = 0;
  std::uint64_t blocks = 0;
  std::uint64_t wakes = 0;  // Pool threads woken from sleep.
};

class EngineCore;

// Any thread.
class Engine {
 public:
  using Done = std::function<void(const GridResult&)>;

  // kResourceExhausted when threads cannot be had.
  static Result<std::unique_ptr<Engine>> create(const EngineOptions& options);
  // Ends running grids with kGridLaunchFailed. Waits for a kernel that never yields.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts a grid and returns at once. `done` is called exactly once, on a pool thread with no lock
  // held. It must not wait. It may submit the next grid, and then no thread is woken for a small
  // one.
  void submit(const LaunchRequest& request, Done done);

  // Runs a grid and returns when it is done. The calling thread takes part, so that a small grid
  // wakes no other thread. For the threads that execute streams. The application's own threads and
  // `done` must not call it.
  GridResult run(const LaunchRequest& request);

  // Ends every grid of `context` (every grid if null) with `code`, at the next wait or yield of its
  // threads.
  void cancel(const ContextRuntime* context, int code);

  EngineCounters counters() const;

 private:
  explicit Engine(std::unique_ptr<EngineCore> core);
  std::unique_ptr<EngineCore> core_;
};

// The functions that compiled code calls, for Compiler::create. resolve_function is null.
const RuntimeFunctions& runtime_functions();

}  // namespace gpurun::emulated
