// The contract between compiled kernels and the engine that runs them: what a CUDA thread finds at
// run time, and the functions that compiled code calls. Plain data and C functions only, because
// both sides of it are machine code that knows no C++.
//
// Changing anything here changes cached objects too: the cache key covers this file's text.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::emulated {

// Addresses
//   generic, global, const, local, param: the host's 64-bit virtual address, all equal.
//   shared: a 32-bit offset from BlockContext::shared. Offsets wrap at 2^32 before they are added
//   to
//     the base, as on NVIDIA devices (cuSOLVER and cuFFT depend on it). The generic address of a
//     shared variable is BlockContext::shared + offset.
// So a wild shared access lies within 4 GiB above `shared`: an engine that reserves that range
// without access turns each of them into a fault of this block.
//
// Threads and stacks
//   All threads of a block run on one host thread at a time; shared-memory atomics are compiled to
//   plain read-modify-writes and depend on that. Blocks of a grid, and grids, run in parallel.
//   Every CUDA thread has a stack of CompiledKernel::stack_bytes plus what the run-time functions
//   below need; .local variables live on it (that is how isspacep.local tells them).
//   A kernel whose CompiledKernel::needs_fibers is false makes no call that waits or leaves the
//   thread early except trap and assert_fail: its threads may run one after the other on one stack.

inline constexpr std::uint32_t kWarpLanes = 32;
inline constexpr std::uint32_t kBlockThreadsMax = 1024;
inline constexpr std::uint32_t kBarriersPerBlock = 16;

// What all threads of one block share. Written by the engine before the block starts and constant
// while it runs: compiled code loads these fields once and keeps them in registers.
struct BlockContext {
  std::uint8_t* shared;        // Base of the shared window; at least 1 KiB aligned.
  const std::uint8_t* params;  // Kernel parameters as laid out by KernelAttributes; 16 aligned.
  std::uint32_t block_id[3];   // %ctaid
  std::uint32_t block_dim[3];  // %ntid
  std::uint32_t grid_dim[3];   // %nctaid
  std::uint32_t dynamic_shared_bytes;  // %dynamic_smem_size
  std::uint32_t total_shared_bytes;    // %total_smem_size: static + dynamic.
  std::uint32_t shared_window_bytes;   // isspacep.shared: shared <= address < shared + this.
  std::uint32_t param_bytes;           // isspacep.param: params <= address < params + this.
  std::uint32_t sm_id;                 // %smid
  std::uint32_t sm_count;              // %nsmid
  std::uint32_t reserved;
  std::uint64_t grid_id;  // %gridid
  std::uint64_t
      grid_workspace;  // %envreg1 (high), %envreg2 (low): cooperative launches' workspace.
  void* engine;        // The engine's own; compiled code never looks.
};

// Where a thread stands in a function's loops. Lanes of a warp with equal positions are converged.
// Compiled code makes one in its frame (codegen/positions.cc); it is valid during the call that it
// is made for.
struct CodePosition {
  const CodePosition* caller;  // Of the call of this function. nullptr in a kernel's own code.
  const void* function;        // Tells functions apart that one call through a pointer can reach.
  std::uint64_t word_count;
  // Followed by the words. For each loop around the place, from the outermost on: the loop's number
  // in the function and how often the thread has come to the loop's header. Then the place's
  // number. Of two places the one with the smaller number comes first in the code.
  const std::uint64_t* words() const { return reinterpret_cast<const std::uint64_t*>(this + 1); }
};

// One CUDA thread. Its address is the first argument of everything.
struct ThreadContext {
  const BlockContext* block;
  std::uint32_t thread_id[3];   // %tid
  std::uint32_t thread_linear;  // x + y * ntid.x + z * ntid.x * ntid.y; lane = low 5 bits.
  std::uint64_t stack_low;      // isspacep.local: stack_low <= address < stack_high.
  std::uint64_t stack_high;
  // Counted down by every volatile, relaxed or acquire load and every compare-and-swap or exchange;
  // at zero compiled code calls RuntimeFunctions::yield, which sets it anew. So a thread that spins
  // on memory lets the others run, and a thread that merely reads pays one decrement.
  std::int32_t poll_budget;
  // The device runtime's last error of this thread, a cudaError (cudaGetLastError in kernels); 0
  // when the thread starts. Compiled code never looks.
  std::uint32_t last_error;
  void* engine;  // The engine's own; compiled code never looks.
  // Where the running function was called. Written by compiled code around a call, and only if what
  // it calls can use a CodePosition. nullptr when the thread starts.
  const CodePosition* caller;
};

// A compiled kernel: runs one CUDA thread to its end.
using KernelFunction = void (*)(ThreadContext* thread);

// What one lane brings to a warp operation and where its result goes. Both arrays are on the lane's
// stack and stay valid until RuntimeFunctions::warp returns to that lane.
struct WarpSlot {
  const std::uint32_t* in;
  std::uint32_t* out;
};

// Performs one warp operation (a shuffle, a vote, a matrix product, ...) for the lanes whose bits
// are in `present`; slots[lane] is valid for those only. Pure: reads `in`, writes `out`, and for
// ldmatrix the memory that `in` points at. Written with the code generator, called by the engine.
using WarpFunction = void (*)(std::uint32_t present, const WarpSlot* slots);

// What native functions that use objects of the driver (texture_functions.h, surface_functions.h)
// find wrong.
enum class DeviceFault : std::uint32_t {
  kNone,
  kNoTexture,       // No texture object has this handle.
  kLinearTexture,   // Linear memory has no texels but indexed ones.
  kNoSurface,       // No surface object has this handle.
  kOutsideSurface,  // An access with .trap.
};

// What an exchange brings and gets of 32-bit words, at most.
inline constexpr std::uint32_t kExchangeInputs = 3;
inline constexpr std::uint32_t kExchangeResults = 2;

// The words of the lanes of neighbouring warps, side by side.
struct WarpWords {
  const std::uint32_t* in[kExchangeInputs];  // Lane l's: in[i][l * step[i]].
  std::uint32_t step[kExchangeInputs];       // 1; 0: all lanes have the same.
  std::uint32_t* out[kExchangeResults];      // One a lane; nullptr: nobody asks for it.
};

// As WarpFunction, for an operation of few words and for that many warps, each with the same lanes
// present.
using WordsFunction = void (*)(std::uint32_t present, const WarpWords& words, std::uint32_t warps);

enum class BarrierReduction : std::uint32_t { kPopulation, kAnd, kOr };

// What a kernel asks of its driver: the functions that CUDA's device runtime (libcudadevrt, which
// nvcc -rdc links into a program as PTX) declares and does not define, without their prefixes
// (codegen/device_calls.cc). Their prototypes and error numbers are read off that PTX, their
// meaning off the functions that call them (cuda_device_runtime_api.h).
enum class DeviceCall : std::uint32_t {
  kSetLastError,
  kGetLastError,
  kGetParameterBuffer,
  kGetParameterBufferV2,
  kLaunchDevice,
  kLaunchDeviceV2,
  kStreamCreate,
  kStreamDestroy,
  kStreamWaitEvent,
  kEventCreate,
  kEventRecord,
  kEventDestroy,
  kFuncGetAttribute,
  kDeviceGetAttribute,
  kGetDeviceCount,
  kGetDevice,
  kGetLimit,
  kGetCacheConfig,
  kGetSharedMemConfig,
  kMaxActiveBlocks,
};

// The functions that compiled code calls, filled in by the engine; all of them must be set. Each
// may switch to another CUDA thread unless its comment says that it does not. `site` numbers the
// instruction inside its kernel, the same for every thread that executes it.
struct RuntimeFunctions {
  // bar.sync / barrier.sync id, count. `count` 0 means all threads of the block, else a multiple of
  // 32. Threads that have exited count as arrived. Returns when the barrier is complete.
  void (*barrier_sync)(ThreadContext*, std::uint32_t id, std::uint32_t count);
  // bar.arrive: counts as an arrival and returns at once.
  void (*barrier_arrive)(ThreadContext*, std::uint32_t id, std::uint32_t count);
  // bar.red: as barrier_sync; returns the number of true `value`s (each 0 or 1) for kPopulation,
  // else 0 or 1, over the threads that synchronise here.
  std::uint32_t (*barrier_reduce)(ThreadContext*, std::uint32_t id, std::uint32_t count,
                                  std::uint32_t reduction, std::uint32_t value);
  // barrier.cluster.arrive and .wait; a cluster is one block unless the engine knows better.
  void (*cluster_arrive)(ThreadContext*);
  void (*cluster_wait)(ThreadContext*);

  // Every .sync warp instruction: waits until all lanes of `mask` that have not exited have come
  // with the same `function` and `mask`, runs `function` once over their slots (nullptr:
  // bar.warp.sync, nothing to run), and returns in all of them. Lanes may come from different sites
  // (allowed since sm_70). A lane that is not in its own mask is treated as if it were.
  void (*warp)(ThreadContext*, std::uint32_t site, std::uint32_t mask, WarpFunction function,
               const std::uint32_t* in, std::uint32_t* out);
  // The same for an operation of at most kExchangeInputs and kExchangeResults words, which come and
  // go by value: the first result in the low half.
  std::uint64_t (*exchange)(ThreadContext*, std::uint32_t site, std::uint32_t mask,
                            WarpFunction function, std::uint32_t a, std::uint32_t b,
                            std::uint32_t c);
  // activemask: the lanes that arrive at an equal position before the warp has nothing else to run.
  // Always holds the caller's bit.
  std::uint32_t (*active_mask)(ThreadContext*, const CodePosition* position);
  // Called before a volatile or relaxed access of shared memory. Returns when the lanes that arrive
  // at an equal position have arrived, as for active_mask: so converged lanes make one access after
  // the other together. `is_load` is 0 or 1; a thread that only loads may be waiting for others.
  void (*step_together)(ThreadContext*, const CodePosition* position, std::uint32_t is_load);

  // Lets other threads, blocks and grids run; sets thread->poll_budget.
  void (*yield)(ThreadContext*);
  // nanosleep: a hint, may return earlier; always yields.
  void (*sleep)(ThreadContext*, std::uint32_t nanoseconds);

  // Ends this thread only (`exit` inside a called function). Does not return.
  void (*exit)(ThreadContext*);
  // trap: ends the grid with CUDA_ERROR_LAUNCH_FAILED (719). Does not return. `site` for the log.
  void (*trap)(ThreadContext*, std::uint32_t site);
  // Ends the grid with CUDA_ERROR_LAUNCH_FAILED (719) and a message that names the DeviceFault and
  // the object's handle. Does not return.
  void (*object_fault)(ThreadContext*, std::uint32_t fault, std::uint64_t handle);
  // __assertfail(message, file, line, function, char size): prints as CUDA does and ends the grid
  // with CUDA_ERROR_ASSERT (710). The strings are device addresses. Does not return.
  void (*assert_fail)(ThreadContext*, std::uint64_t message, std::uint64_t file, std::uint32_t line,
                      std::uint64_t function, std::uint64_t char_bytes);

  // vprintf(format, arguments): both device addresses; arguments are packed as in C with natural
  // alignment. Returns the number of arguments, or -1. Does not switch.
  std::int32_t (*print)(ThreadContext*, std::uint64_t format, std::uint64_t arguments);
  // Device heap: 0 when it is full; 16-aligned. Do not switch.
  std::uint64_t (*allocate)(ThreadContext*, std::uint64_t bytes);
  void (*release)(ThreadContext*, std::uint64_t address);

  // Cooperative groups by a handle, as numba uses them: results are cudaError_t, 0 or
  // cudaErrorInvalidValue for a handle that is none. The grid's handle (scope 1, cudaCGScopeGrid),
  // 0 where the launch is not cooperative, and for a scope that is not supported. Does not switch.
  std::uint64_t (*group_handle)(ThreadContext*, std::uint32_t scope);
  // Waits for all threads of the grid; `flags` have no meaning yet.
  std::uint32_t (*group_sync)(ThreadContext*, std::uint64_t handle, std::uint32_t flags);
  // Threads of the group, and groups; this thread's number, and its group's. The places are device
  // addresses of u32 or 0. Do not switch.
  std::uint32_t (*group_size)(ThreadContext*, std::uint64_t threads, std::uint64_t groups,
                              std::uint64_t handle);
  std::uint32_t (*group_rank)(ThreadContext*, std::uint64_t thread_rank, std::uint64_t group_rank,
                              std::uint64_t handle);

  // A DeviceCall. `arguments`: one word each in the order of the prototype, a dim3 as three;
  // pointers are device addresses. Returns the function's result. Does not switch.
  std::uint64_t (*device_call)(ThreadContext*, std::uint32_t call, const std::uint64_t* arguments);

  // %globaltimer: nanoseconds of a clock that never goes back. Does not switch.
  std::uint64_t (*global_timer)(ThreadContext*);

  // Called with a function's descriptor whose code is not compiled yet (see FunctionDescriptor):
  // compiles it on a thread with a stack of its own and returns its code. The module's compiler
  // provides this one (module/function_table.h); the engine leaves it null.
  void* (*resolve_function)(ThreadContext*, void* descriptor);
};

// The device address of a function (what a function pointer holds, also in a variable's
// initialiser) is the address of its descriptor, fixed when the module is loaded; code appears at
// first use.
struct FunctionDescriptor {
  void* code;    // void (*)(ThreadContext*, void* result_or_parameter...); null until compiled.
  void* module;  // The module's own.
  std::uint64_t index;
};

// Regions -----------------------------------------------------------------------------------------
//
// The fast form of a kernel (server/emulated/regions, docs/adr/0025): the code between two waits of
// a thread (cuts) runs for many threads of a block (lanes) before the next such code does. Lanes
// are numbered as thread_linear.

// What lanes leave behind between regions. All arrays have `capacity` elements, one a lane.
struct RegionFrame {
  std::uint8_t* slots;     // Values that live across a cut, each an array of its own.
  std::uint8_t* local;     // Local memory: RegionProgram::local_bytes each, 64-aligned.
  std::uint32_t* next;     // The region that the lane continues in; kRegionEnded.
  std::uint32_t* operand;  // What it brings to the cut: a warp's member mask, a reduction's value.
  std::uint32_t* result;   // What the cut gives it: a reduction's result, an exchange's first,
  std::uint32_t* second;   // and its second.
  std::uint32_t* word[kExchangeInputs];  // What it brings to an exchange.
  std::uint64_t* in;                     // WarpSlot's pointers.
  std::uint64_t* out;
  std::uint64_t capacity;  // A multiple of 32.
};

inline constexpr std::uint32_t kRegionEnded = 0;
inline constexpr std::uint32_t kRegionMixed = ~std::uint32_t{0};

// How many lanes with neighbouring %tid.x run the same instructions together (a slice), at most: a
// register of 512 bits holds a word of each. Half as many cost a slice as many instructions, but
// rows of 8 to 15 threads have none else.
inline constexpr unsigned kSliceLanes = 16;
inline constexpr unsigned kNarrowSliceLanes = 8;

// Runs the lanes [begin, end) to their next cuts. Returns the region that all of them continue in
// (kRegionEnded: none), or kRegionMixed: RegionFrame::next says where each of them stands. Before
// anything that can fault it leaves the lane (of several that run together the first) in
// thread->thread_linear.
using RegionFunction = std::uint32_t (*)(ThreadContext* thread, const RegionFrame* frame,
                                         std::uint32_t begin, std::uint32_t end);

enum class CutKind : std::uint32_t { kBarrier, kReduction, kWarp, kExchange };

// What the lanes wait for before region number `its index + 1`.
struct RegionCut {
  CutKind kind;
  std::uint32_t id;         // Barriers.
  std::uint32_t count;      // Barriers: as barrier_sync.
  std::uint32_t reduction;  // A BarrierReduction.
  WarpFunction function;    // Warp operations.
  // Exchanges.
  WordsFunction words_function;
  std::uint32_t results;  // How many of them are asked for.
  std::uint32_t known;    // Bit 0: the member mask is the same in all lanes, `mask`; bit 1 + i:
  std::uint32_t mask;     // input i, words[i]. What is known is not in the frame.
  std::uint32_t words[kExchangeInputs];
};
inline constexpr std::uint32_t kKnownMask = 1;
inline constexpr std::uint32_t kKnownWord = 2;  // << i

struct RegionProgram {
  std::uint32_t cut_count;   // There is one region more.
  std::uint32_t slot_bytes;  // Of one lane.
  std::uint32_t local_bytes;
  std::uint32_t reserved;
  const RegionFunction* functions;  // Region 0 is the kernel's start.
  const RegionCut* cuts;
};

static_assert(sizeof(RegionFrame) == 96 && sizeof(RegionCut) == 56 && sizeof(RegionProgram) == 32);
static_assert(sizeof(BlockContext) == 104 && offsetof(BlockContext, block_id) == 16);
static_assert(sizeof(ThreadContext) == 64 && offsetof(ThreadContext, poll_budget) == 40);
static_assert(sizeof(CodePosition) == 24);

}  // namespace gpurun::emulated
