// Device ABI: the contract between compiled kernels and the engine that runs them. It defines the
// data that a CUDA thread finds at run time, and the functions that compiled code calls. It has
// only plain data and C functions, because machine code on both sides of it knows no C++.
//
// Any change here also invalidates cached objects, because the cache key covers this file's text.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::emulated {

// Addresses
//   generic, global, const, local, param: the host's 64-bit virtual address, all equal.
//   shared: a 32-bit offset from BlockContext::shared. The offset wraps at 2^32 before it is added
//     to the base, as on NVIDIA devices (cuSOLVER and cuFFT depend on it). The generic address of a
//     shared variable is BlockContext::shared + offset.
// So a wild shared access lies within 4 GiB above `shared`. An engine that reserves that range
// without access turns each such access into a fault of this block.
//
// Threads and stacks
//   All threads of a block run on one host thread at a time. Shared-memory atomics are compiled to
//   plain read-modify-writes and depend on that. Blocks of a grid, and grids, run in parallel.
//   Every CUDA thread has a stack of CompiledKernel::stack_bytes, plus what the run-time functions
//   below need. Its .local variables lie on that stack, and isspacep.local recognises them by it.
//   When CompiledKernel::needs_fibers is false, the kernel makes no call that waits. No call of it
//   leaves the thread early, except trap and assert_fail. So its threads may run one after the
//   other on one stack.

inline constexpr std::uint32_t kWarpLanes = 32;
inline constexpr std::uint32_t kBlockThreadsMax = 1024;
inline constexpr std::uint32_t kBarriersPerBlock = 16;

// The state that all threads of one block share. The engine writes it before the block starts, and
// it is constant while the block runs. Compiled code loads these fields once and keeps them in
// registers.
struct BlockContext {
  std::uint8_t* shared;  // Base of the shared window. At least 1 KiB aligned.
  // Kernel parameters as KernelAttributes lays them out. 16-aligned.
  const std::uint8_t* params;
  std::uint32_t block_id[3];           // %ctaid
  std::uint32_t block_dim[3];          // %ntid
  std::uint32_t grid_dim[3];           // %nctaid
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
  void* engine;        // The engine's own. Compiled code never reads it.
};

// Where a thread is in a function's loops. Lanes of a warp with equal positions are converged.
// Compiled code makes a CodePosition in its frame (codegen/positions.cc). It is valid only during
// the call that it is made for.
struct CodePosition {
  // The position of the call of this function. nullptr in a kernel's own code.
  const CodePosition* caller;
  // Distinguishes functions that one call through a pointer can reach.
  const void* function;
  std::uint64_t word_count;
  // The words follow. Each loop around the place has two, from the outermost loop inwards. The
  // first is the loop's number in the function. The second is how often the thread has reached the
  // loop's header. The last word is the place's number. Of two places, the one with the smaller
  // number comes first in the code.
  const std::uint64_t* words() const { return reinterpret_cast<const std::uint64_t*>(this + 1); }
};

// One CUDA thread. Its address is the first argument of every kernel and run-time function.
struct ThreadContext {
  const BlockContext* block;
  std::uint32_t thread_id[3];   // %tid
  std::uint32_t thread_linear;  // x + y * ntid.x + z * ntid.x * ntid.y. lane = low 5 bits.
  std::uint64_t stack_low;      // isspacep.local: stack_low <= address < stack_high.
  std::uint64_t stack_high;
  // Decremented by every volatile, relaxed or acquire load and every compare-and-swap or exchange.
  // At zero, compiled code calls RuntimeFunctions::yield, which resets it. So a thread that spins
  // on memory lets the others run, and a thread that only reads pays one decrement.
  std::int32_t poll_budget;
  // The device runtime's last error of this thread, a cudaError (cudaGetLastError in kernels). 0
  // when the thread starts. Compiled code never reads it.
  std::uint32_t last_error;
  void* engine;  // The engine's own. Compiled code never reads it.
  // The position of the call of the running function. Compiled code writes it around a call, and
  // only if the callee can use a CodePosition. nullptr when the thread starts.
  const CodePosition* caller;
};

// A compiled kernel: runs one CUDA thread to its end.
using KernelFunction = void (*)(ThreadContext* thread);

// The inputs of one lane to a warp operation, and the place of its results. Both arrays are on the
// lane's stack and stay valid until RuntimeFunctions::warp returns to that lane.
struct WarpSlot {
  const std::uint32_t* in;
  std::uint32_t* out;
};

// Performs one warp operation (a shuffle, a vote, a matrix product, ...) for the lanes with a bit
// set in `present`. Only their slots[lane] are valid. It is pure: it reads `in` and writes `out`.
// Only ldmatrix and stmatrix also access the memory that `in` points at. The engine calls it.
using WarpFunction = void (*)(std::uint32_t present, const WarpSlot* slots);

// What native functions that use objects of the driver (texture_functions.h, surface_functions.h)
// report as wrong.
enum class DeviceFault : std::uint32_t {
  kNone,
  kNoTexture,  // No texture object has this handle.
  // Linear memory has only indexed texels.
  kLinearTexture,
  kNoSurface,       // No surface object has this handle.
  kOutsideSurface,  // An access with .trap.
  kNoMulticast,     // multimem instructions take addresses of multicast objects only.
};

// The largest numbers of 32-bit inputs and results of an exchange.
inline constexpr std::uint32_t kExchangeInputs = 3;
inline constexpr std::uint32_t kExchangeResults = 2;

// The words of the lanes of neighbouring warps, side by side.
struct WarpWords {
  const std::uint32_t* in[kExchangeInputs];  // Lane l's: in[i][l * step[i]].
  std::uint32_t step[kExchangeInputs];       // 1. 0: all lanes have the same word.
  std::uint32_t* out[kExchangeResults];      // One per lane. nullptr: not needed.
};

// As WarpFunction, for an operation of few words and for `warps` warps at once. The same lanes are
// present in each of them.
using WordsFunction = void (*)(std::uint32_t present, const WarpWords& words, std::uint32_t warps);

enum class BarrierReduction : std::uint32_t { kPopulation, kAnd, kOr };

// The calls from a kernel to its driver. They are the functions that CUDA's device runtime declares
// and does not define, without their prefixes (codegen/device_calls.cc). nvcc -rdc links the device
// runtime (libcudadevrt) into a program as PTX. The prototypes and error numbers come from that
// PTX, the meanings from the functions that call them (cuda_device_runtime_api.h).
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
  kGraphSetConditional,
};

// The functions that compiled code calls. The engine fills in all of them, except resolve_function.
// Each may switch to another CUDA thread unless its comment says that it does not. `site` numbers
// the instruction inside its kernel, the same for every thread that executes it.
struct RuntimeFunctions {
  // bar.sync / barrier.sync id, count. `count` 0 means all threads of the block, else it is a
  // multiple of 32. Threads that have exited count as arrived. Returns when the barrier is
  // complete.
  void (*barrier_sync)(ThreadContext*, std::uint32_t id, std::uint32_t count);
  // bar.arrive: counts as an arrival and returns at once.
  void (*barrier_arrive)(ThreadContext*, std::uint32_t id, std::uint32_t count);
  // bar.red: as barrier_sync, with a `value` of 0 or 1 from each thread. kPopulation returns the
  // number of values that are 1, over the threads that synchronise here. The other reductions
  // return 0 or 1.
  std::uint32_t (*barrier_reduce)(ThreadContext*, std::uint32_t id, std::uint32_t count,
                                  std::uint32_t reduction, std::uint32_t value);
  // barrier.cluster.arrive and .wait. A cluster is one block unless the engine supports larger
  // ones.
  void (*cluster_arrive)(ThreadContext*);
  void (*cluster_wait)(ThreadContext*);

  // Every .sync warp instruction. It waits until all lanes of `mask` that have not exited have
  // called it with the same `function` and `mask`. Then it runs `function` once over their slots
  // and returns in all of them. A null `function` runs nothing: bar.warp.sync. Lanes may come from
  // different sites (allowed since sm_70). A lane that is not in its own mask is treated as if it
  // were.
  void (*warp)(ThreadContext*, std::uint32_t site, std::uint32_t mask, WarpFunction function,
               const std::uint32_t* in, std::uint32_t* out);
  // As warp(), for an operation of at most kExchangeInputs and kExchangeResults words, which are
  // passed by value. The first result is in the low half.
  std::uint64_t (*exchange)(ThreadContext*, std::uint32_t site, std::uint32_t mask,
                            WarpFunction function, std::uint32_t a, std::uint32_t b,
                            std::uint32_t c);
  // activemask: the lanes that arrive at an equal position before the warp has nothing else to run.
  // It always has the caller's bit set.
  std::uint32_t (*active_mask)(ThreadContext*, const CodePosition* position);
  // Called before a volatile or relaxed access of shared memory. Returns when the lanes that arrive
  // at an equal position have arrived, as for active_mask. So converged lanes make each access
  // together. `is_load` is 0 or 1. A thread that only loads may be waiting for others.
  void (*step_together)(ThreadContext*, const CodePosition* position, std::uint32_t is_load);

  // Lets other threads, blocks and grids run, and sets thread->poll_budget.
  void (*yield)(ThreadContext*);
  // nanosleep: a hint. It may return earlier, and it always yields.
  void (*sleep)(ThreadContext*, std::uint32_t nanoseconds);

  // Ends this thread only (`exit` inside a called function). Does not return.
  void (*exit)(ThreadContext*);
  // trap: ends the grid with CUDA_ERROR_LAUNCH_FAILED (719). Does not return. `site` is for the
  // log.
  void (*trap)(ThreadContext*, std::uint32_t site);
  // Ends the grid with CUDA_ERROR_LAUNCH_FAILED (719) and a message that names the DeviceFault and
  // the object's handle. Does not return.
  void (*object_fault)(ThreadContext*, std::uint32_t fault, std::uint64_t handle);
  // __assertfail(message, file, line, function, char size): prints as CUDA does and ends the grid
  // with CUDA_ERROR_ASSERT (710). The strings are device addresses. Does not return.
  void (*assert_fail)(ThreadContext*, std::uint64_t message, std::uint64_t file, std::uint32_t line,
                      std::uint64_t function, std::uint64_t char_bytes);

  // vprintf(format, arguments), both of them device addresses. The arguments are packed as in C
  // with natural alignment. Returns the number of arguments, or -1. Does not switch.
  std::int32_t (*print)(ThreadContext*, std::uint64_t format, std::uint64_t arguments);
  // Device heap. The memory is 16-aligned, and 0 means that the heap is full. Neither function
  // switches.
  std::uint64_t (*allocate)(ThreadContext*, std::uint64_t bytes);
  void (*release)(ThreadContext*, std::uint64_t address);

  // Cooperative groups by a handle, as numba uses them. The results are cudaError_t: 0, or
  // cudaErrorInvalidValue for an invalid handle. group_handle returns the grid's handle (scope 1,
  // cudaCGScopeGrid). It returns 0 for a launch that is not cooperative, and for an unsupported
  // scope. It does not switch.
  std::uint64_t (*group_handle)(ThreadContext*, std::uint32_t scope);
  // Waits for all threads of the grid. `flags` have no meaning yet.
  std::uint32_t (*group_sync)(ThreadContext*, std::uint64_t handle, std::uint32_t flags);
  // The numbers of threads in the group and of groups, and this thread's rank and its group's. They
  // are written as u32 to the given device addresses. 0: not wanted. Neither function switches.
  std::uint32_t (*group_size)(ThreadContext*, std::uint64_t threads, std::uint64_t groups,
                              std::uint64_t handle);
  std::uint32_t (*group_rank)(ThreadContext*, std::uint64_t thread_rank, std::uint64_t group_rank,
                              std::uint64_t handle);

  // A DeviceCall. `arguments`: one word each in the order of the prototype, a dim3 as three words,
  // and pointers as device addresses. Returns the function's result. Does not switch.
  std::uint64_t (*device_call)(ThreadContext*, std::uint32_t call, const std::uint64_t* arguments);

  // %globaltimer: nanoseconds of a clock that never goes back. Does not switch.
  std::uint64_t (*global_timer)(ThreadContext*);

  // Compiles the function of a descriptor that has no code yet (see FunctionDescriptor), on a
  // thread with a large stack, and returns its code. The compiler provides this function
  // (jit/compiler.cc). The engine leaves it null.
  void* (*resolve_function)(ThreadContext*, void* descriptor);
};

// A function's descriptor. Its address is the device address of the function, which function
// pointers and initialisers of variables hold. It is fixed when the module is loaded. The code is
// compiled at its first use.
struct FunctionDescriptor {
  void* code;    // void (*)(ThreadContext*, void* result_or_parameter...). Null until compiled.
  void* module;  // The module's own.
  std::uint64_t index;
};

// Regions -----------------------------------------------------------------------------------------
//
// The fast form of a kernel (emulated/regions, docs/adr/0025). The places where a thread
// waits are cuts. The code between two cuts runs for many threads (lanes) of a block before the
// code after the next cut does. Lanes are numbered as thread_linear.

// The state that lanes keep between regions. All arrays have `capacity` elements, one per lane.
struct RegionFrame {
  // Values that live across a cut, each an array of its own.
  std::uint8_t* slots;
  // Local memory: RegionProgram::local_bytes each, 64-aligned.
  std::uint8_t* local;
  // The region in which the lane continues, or kRegionEnded.
  std::uint32_t* next;
  // The lane's input to the cut: a warp's member mask, or a reduction's value.
  std::uint32_t* operand;
  // The cut's result for the lane: a reduction's result, or an exchange's first.
  std::uint32_t* result;
  // An exchange's second result.
  std::uint32_t* second;
  // The lane's inputs to an exchange.
  std::uint32_t* word[kExchangeInputs];
  std::uint64_t* in;  // WarpSlot's pointers.
  std::uint64_t* out;
  std::uint64_t capacity;  // A multiple of 32.
};

inline constexpr std::uint32_t kRegionEnded = 0;
inline constexpr std::uint32_t kRegionMixed = ~std::uint32_t{0};

// The number of lanes with neighbouring %tid.x that run the same instructions together (a slice),
// at most. A register of 512 bits holds one word of each. A slice of half as many lanes costs as
// many instructions, but rows of 8 to 15 threads have no wider one.
inline constexpr unsigned kSliceLanes = 16;
inline constexpr unsigned kNarrowSliceLanes = 8;

// Runs the lanes [begin, end) to their next cuts. Returns the region in which all of them continue
// (kRegionEnded: they have ended), or kRegionMixed when they differ, as RegionFrame::next says.
// Before anything that can fault, it stores the lane in thread->thread_linear. For several lanes
// that run together it stores the first.
using RegionFunction = std::uint32_t (*)(ThreadContext* thread, const RegionFrame* frame,
                                         std::uint32_t begin, std::uint32_t end);

enum class CutKind : std::uint32_t { kBarrier, kReduction, kWarp, kExchange };

// What the lanes wait for before they continue. The cut of index i precedes region i + 1.
struct RegionCut {
  CutKind kind;
  std::uint32_t id;         // Barriers.
  std::uint32_t count;      // Barriers: as barrier_sync.
  std::uint32_t reduction;  // A BarrierReduction.
  WarpFunction function;    // Warp operations.
  // Exchanges.
  WordsFunction words_function;
  std::uint32_t results;  // How many results are used.
  // Bit 0: the member mask is `mask` in all lanes. Bit 1 + i: input i is words[i] in all lanes.
  // Known inputs are not in the frame.
  std::uint32_t known;
  std::uint32_t mask;
  std::uint32_t words[kExchangeInputs];
};
inline constexpr std::uint32_t kKnownMask = 1;
inline constexpr std::uint32_t kKnownWord = 2;  // << i

struct RegionProgram {
  std::uint32_t cut_count;   // There is one more region than cuts.
  std::uint32_t slot_bytes;  // Per lane.
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
