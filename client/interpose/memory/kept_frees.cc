// Kept frees: the kept memory of all streams, and the accounts of each device's own pool.
#include "client/interpose/memory/kept_frees.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "client/interpose/call/implicit_order.h"
#include "client/interpose/call/remembered.h"
#include "client/interpose/call/stream.h"
#include "client/interpose/capture/capture_count.h"

namespace gpurun::client::interpose {
namespace {

constexpr std::size_t kDevicesMax = 64;
// Memory of a pool is aligned to so many bytes, and a driver may count it in such units.
constexpr std::uint64_t kUnitBytes = 512;

struct KeptFree {
  CallSite site;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::size_t device = 0;
  bool blocking = false;      // In a created blocking stream.
  bool after_legacy = false;  // Behind legacy work, which the stream's own progress does not show.
  std::uint64_t behind = 0;   // The last call with work before it, or kUnknown.
};
// No report of the worker can show that the stream has reached the free.
constexpr std::uint64_t kUnknown = ~std::uint64_t{0};

// An amount of memory, as both kinds of driver count it.
struct Amount {
  std::uint64_t bytes = 0;
  std::uint64_t units = 0;

  void add(std::uint64_t count) {
    bytes += count;
    units += (count + kUnitBytes - 1) / kUnitBytes;
  }
  void remove(std::uint64_t count) {
    bytes -= count;
    units -= (count + kUnitBytes - 1) / kUnitBytes;
  }
  bool within(const Amount& most) const { return bytes <= most.bytes && units <= most.units; }
};

// A device's own pool.
struct Account {
  Amount used;                  // By the program.
  Amount high;                  // No more than the most of `used` since the mark's last reset.
  Amount posted;                // By the driver's count: `used`, and the kept frees.
  std::uint64_t threshold = 0;  // The pool may hold on to so many bytes at a wait.

  bool may_hold_all() const {
    return std::max(posted.bytes, posted.units * kUnitBytes) <= threshold;
  }
  void use(std::uint64_t count) {
    used.add(count);
    high.bytes = std::max(high.bytes, used.bytes);
    high.units = std::max(high.units, used.units);
  }
};

void post_kept(const EntryContext& here, KeptIn where);

struct Kept {
  Kept() {
    // So that nothing below allocates between a free and its note.
    frees.reserve(kKeptFreesMax + 1);
    set_post_kept(&post_kept);
  }
  std::mutex mutex;                           // Held around appends of kept frees.
  std::vector<KeptFree> frees;                // The oldest first. Guarded by mutex.
  std::uint64_t bytes = 0;                    // Of `frees`. Guarded by mutex.
  std::array<Account, kDevicesMax> accounts;  // By the program's number. Guarded by mutex.
  bool stopped = false;                       // Guarded by mutex.
};

// Never destroyed, because programs call us after exit handlers have run.
Kept& kept() {
  static auto* const all = new Kept;
  return *all;
}

bool has_account(int ordinal) {
  return ordinal >= 0 && static_cast<std::size_t>(ordinal) < kDevicesMax;
}

// The functions below with a Kept run under its lock.

void count(const Kept& all) { g_kept_frees.store(all.frees.size(), std::memory_order_relaxed); }

void forget(Kept& all, std::size_t place) {
  all.bytes -= all.frees[place].bytes;
  if (all.frees[place].blocking) {
    g_kept_in_blocking_streams.fetch_sub(1, std::memory_order_relaxed);
  }
  all.frees.erase(all.frees.begin() + static_cast<std::ptrdiff_t>(place));
  count(all);
}

bool same_place(const CallSite& site, const CallSite& other) {
  return site.stream == other.stream && site.context == other.context;
}

// Whether the worker has reported the end of the work before the free. Captures refuse cuMemFree.
bool is_done(const EntryContext& here, const KeptFree& free) {
  return !capturing_somewhere() &&
         here.session().is_complete_up_to(free.site.context, free.site.stream, free.behind);
}

// A free that the program may know to be done comes out of its stream's order, because newer work
// of the stream may be under way. cuMemFree waits for nothing then (free_pool_memory()). The worker
// has reported the end of all work that could use the memory.
void post(const EntryContext& here, Kept& all, std::size_t place) {
  const KeptFree free = all.frees[place];
  // A failure is sticky or the session's end, which the program's own call returns too.
  if (is_done(here, free)) {
    (void)free_pool_memory(here, free.site.context, free.address);
  } else {
    (void)post_row(here, opcode::cuMemFreeAsync, free.site, {}, CUdeviceptr{free.address},
                   as<CUstream>(free.site.stream));
  }
  all.accounts[free.device].posted.remove(free.bytes);
  forget(all, place);
}

// Posts those that are `wanted`, in their order.
template <typename Wanted>
void post_all(const EntryContext& here, Kept& all, Wanted wanted) {
  for (std::size_t i = 0; i < all.frees.size();) {
    if (wanted(all.frees[i])) {
      post(here, all, i);
    } else {
      ++i;
    }
  }
}

// What a call may show of a kept free.
enum class Shows : std::uint8_t {
  kNothing,
  kReached,   // It may return when a stream's work is done, so that the stream must have freed.
  kReturned,  // As kReached. A pool also returns memory beyond its release threshold then.
  kOrder,     // A later call may need to be behind the free, or needs the memory or the accounts.
};

// Work on streams cannot name freed memory, and its place before or behind a free is invisible.
// Local answers do not depend on frees. All else may show them. A record of an event may order
// another stream's allocation behind the free, so it is not among the work here.
Shows shown_by(std::uint16_t row) {
  switch (row) {
    case opcode::cuMemAllocAsync:
    case opcode::cuMemFreeAsync:
    case opcode::cuLaunchKernel:
    case opcode::cuLaunchKernelEx:
    case opcode::cuLaunchCooperativeKernel:
    case opcode::cuMemcpyHtoDAsync_v2:
    case opcode::cuMemcpyDtoDAsync_v2:
    case opcode::cuMemsetD8_v2:
    case opcode::cuMemsetD8Async:
    case opcode::cuMemsetD16_v2:
    case opcode::cuMemsetD16Async:
    case opcode::cuMemsetD32_v2:
    case opcode::cuMemsetD32Async:
    case opcode::cuGetProcAddress_v2:
    case opcode::cuGetExportTable:
    case opcode::cuGetErrorName:
    case opcode::cuGetErrorString:
    case opcode::cuDriverGetVersion:
    case opcode::cuDeviceGet:
    case opcode::cuDeviceGetCount:
    case opcode::cuDeviceGetName:
    case opcode::cuDeviceGetAttribute:
    case opcode::cuCtxGetCurrent:
    case opcode::cuCtxSetCurrent:
    case opcode::cuCtxPushCurrent_v2:
    case opcode::cuCtxPopCurrent_v2:
    case opcode::cuCtxGetDevice:
    case opcode::cuCtxGetId:
    case opcode::cuCtxGetFlags:
    case opcode::cuCtxGetApiVersion:
    case opcode::cuModuleGetFunction:
    case opcode::cuFuncGetAttribute:
    case opcode::cuOccupancyMaxActiveBlocksPerMultiprocessor:
    case opcode::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags:
    case opcode::cuPointerGetAttribute:
    case opcode::cuPointerGetAttributes:
    case opcode::cuEventCreate:
    case opcode::cuEventDestroy_v2:
      return Shows::kNothing;
    case opcode::cuMemcpyHtoD_v2:
    case opcode::cuMemcpyDtoH_v2:
    case opcode::cuMemcpyDtoHAsync_v2:
    case opcode::cuMemcpyDtoD_v2:
    case opcode::cuMemcpy:
    case opcode::cuMemcpyAsync:
    case opcode::cuMemcpy2D_v2:
    case opcode::cuMemcpy2DUnaligned_v2:
    case opcode::cuMemcpy2DAsync_v2:
    case opcode::cuMemcpy3D_v2:
    case opcode::cuMemcpy3DAsync_v2:
      return Shows::kReached;
    case opcode::cuStreamSynchronize:
    case opcode::cuCtxSynchronize:
      return Shows::kReturned;
    default:
      return Shows::kOrder;
  }
}

// Before work in the legacy stream, and before the first blocking stream (implicit_order.h).
void post_kept(const EntryContext& here, KeptIn where) {
  Kept& all = kept();
  const std::lock_guard<std::mutex> lock(all.mutex);
  post_all(here, all, [where](const KeptFree& free) {
    return where == KeptIn::kBlockingStreams ? free.blocking
                                             : free.site.stream < protocol::kStreamPerThread;
  });
}

// Legacy work is a barrier between blocking streams, and so are a free and an allocation.
bool may_keep_in(Handle stream) {
  return stream > protocol::kStreamPerThread ||
         (stream < protocol::kStreamPerThread &&
          g_blocking_streams.load() == BlockingStreams::kNone);
}

// A free in a blocking stream is behind the legacy work before it.
bool follows_legacy_work(const EntryContext& here, Handle context) {
  const std::uint64_t last = here.session().last_work_in(context, protocol::kStreamLegacy);
  return !here.session().is_complete_up_to(context, protocol::kStreamLegacy, last);
}

bool is_blocking(const EntryContext& here, Handle stream) {
  const Stream* const created = find_stream(here, stream);
  return created != nullptr && (created->flags & CU_STREAM_NON_BLOCKING) == 0;
}

// The program's number of the device with `pool` as its own. -1: the client does not know it.
int device_of_pool(const EntryContext& here, Handle pool) {
  // Until the program sets another pool, the current pool of a device is its own.
  for (const std::uint16_t code : {opcode::cuDeviceGetDefaultMemPool, opcode::cuDeviceGetMemPool}) {
    const driver_abi::Row& row = *driver_abi::find_row(code);
    for (int ordinal = 0; ordinal < here.devices().device_count(); ++ordinal) {
      CUmemoryPool own = nullptr;
      CUmemoryPool* out = &own;
      CUdevice device = here.devices().device(ordinal)->server_ordinal;
      void* const arguments[] = {static_cast<void*>(&out), static_cast<void*>(&device)};
      int result = 0;
      const Question question(here, row, arguments, 0);
      if (question.answered(0, &result) && result == 0 && handle_of(own) == pool) return ordinal;
    }
  }
  return -1;
}

}  // namespace

int free_pool_memory(const EntryContext& here, Handle context, CUdeviceptr address) {
  // The worker runs it behind what was answered early, and ahead of queued work.
  CallSite site = here.site(protocol::Order::kOrderedHost);
  site.flags = protocol::kFlagPassesStreams;
  site.context = context;
  return post_row(here, opcode::cuMemFree_v2, site, {}, address);
}

void post_kept_frees_before(const driver_abi::Row& row) {
  const Shows shows = shown_by(row.alias_opcode);
  EntryContext here;
  if (here.enter() != 0) return;
  // Memory of the program may show at any time how far the device has got.
  if (shows == Shows::kOrder || !here.session().may_answer_early()) return post_kept_frees(here);
  if (shows == Shows::kNothing) return;
  Kept& all = kept();
  const std::lock_guard<std::mutex> lock(all.mutex);
  post_all(here, all, [&all, shows](const KeptFree& free) {
    // A wait for a stream without work of its own brings no report. The free makes it one.
    const bool first = free.after_legacy || !all.accounts[free.device].may_hold_all();
    return (shows == Shows::kReturned && first) || free.behind == kUnknown;
  });
}

void post_kept_frees(const EntryContext& here) {
  if (!kept_frees_exist()) return;
  Kept& all = kept();
  const std::lock_guard<std::mutex> lock(all.mutex);
  post_all(here, all, [](const KeptFree&) { return true; });
}

bool keep_free(const EntryContext& here, Handle stream, const MemoryRange& range) {
  if (range.kind != MemoryKind::kPool || range.owner != 0 || !has_account(range.ordinal)) {
    return false;
  }
  // Each thread has its own per-thread stream, which ends with the thread.
  const bool may = stream != protocol::kStreamPerThread && range.bytes <= kKeptBytesMax &&
                   context_of_stream(here, stream) == here.context->handle &&
                   here.context->ordinal == range.ordinal && !capturing_somewhere() &&
                   here.session().may_answer_early() && !pools_were_set();
  Kept& all = kept();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.stopped) return false;
  const auto device = static_cast<std::size_t>(range.ordinal);
  Account& account = all.accounts[device];
  account.used.remove(range.bytes);
  const CallSite site = here.stream_site(stream);
  const bool blocking = is_blocking(here, stream);
  // Read under the lock: a first blocking stream posts what is kept before.
  if (!may || !may_keep_in(stream)) {
    account.posted.remove(range.bytes);
    return false;
  }
  const bool after_legacy = blocking && follows_legacy_work(here, site.context);
  const std::uint64_t behind = after_legacy ? here.session().last_sequence()
                                            : here.session().last_work_in(site.context, stream);
  all.frees.push_back({site, range.base, range.bytes, device, blocking, after_legacy, behind});
  if (blocking) g_kept_in_blocking_streams.fetch_add(1, std::memory_order_relaxed);
  all.bytes += range.bytes;
  count(all);
  while (all.frees.size() > kKeptFreesMax || all.bytes > kKeptBytesMax) post(here, all, 0);
  return true;
}

bool take_kept_free(const EntryContext& here, Handle stream, std::uint64_t bytes,
                    CUdeviceptr* address) {
  if (!has_account(here.context->ordinal) || pools_were_set()) return false;
  const CallSite site = here.stream_site(stream);
  const auto device = static_cast<std::size_t>(here.context->ordinal);
  Kept& all = kept();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.stopped) return false;
  Account& account = all.accounts[device];
  for (std::size_t i = all.frees.size(); i-- > 0;) {
    const KeptFree& free = all.frees[i];
    if (free.bytes != bytes || free.device != device || !same_place(free.site, site)) continue;
    *address = free.address;
    forget(all, i);
    account.use(bytes);
    return true;
  }
  // The largest frees make room with the fewest records.
  for (;;) {
    Amount after = account.posted;
    after.add(bytes);
    if (after.within(account.high)) break;
    std::size_t largest = all.frees.size();
    for (std::size_t i = 0; i < all.frees.size(); ++i) {
      if (all.frees[i].device != device) continue;
      if (largest == all.frees.size() || all.frees[i].bytes > all.frees[largest].bytes) largest = i;
    }
    if (largest == all.frees.size()) break;
    post(here, all, largest);
  }
  account.posted.add(bytes);
  return false;
}

void settle_unknown(const EntryContext& here, std::uint64_t address) {
  if (!kept_frees_exist() || find_range(address).has_value()) return;
  post_kept_frees(here);
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  // It is behind them. Its answer does not matter.
  (void)call_row(here, opcode::cuMemGetAddressRange_v2, here.passing_site(), {}, &base, &bytes,
                 CUdeviceptr{address});
}

void count_allocation(const EntryContext& here, std::uint64_t bytes, bool made) {
  if (!has_account(here.context->ordinal)) return;
  Kept& all = kept();
  const std::lock_guard<std::mutex> lock(all.mutex);
  Account& account = all.accounts[static_cast<std::size_t>(here.context->ordinal)];
  if (made) {
    account.use(bytes);
  } else {
    account.posted.remove(bytes);
  }
}

void count_end_of_pool_memory(const MemoryRange& range) {
  if (range.kind != MemoryKind::kPool || range.owner != 0 || !has_account(range.ordinal)) return;
  Kept& all = kept();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.stopped) return;
  Account& account = all.accounts[static_cast<std::size_t>(range.ordinal)];
  account.used.remove(range.bytes);
  account.posted.remove(range.bytes);
}

void stop_keeping_frees(const EntryContext& here) {
  Kept& all = kept();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.stopped) return;
  post_all(here, all, [](const KeptFree&) { return true; });
  all.stopped = true;
}

void note_pool_attribute(const EntryContext& here, Handle pool, std::uint32_t attribute,
                         std::uint64_t value) {
  const bool threshold = attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
  if (!threshold && attribute != CU_MEMPOOL_ATTR_USED_MEM_HIGH) return;
  const int ordinal = threshold ? device_of_pool(here, pool) : -1;
  Kept& all = kept();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (std::size_t i = 0; i < kDevicesMax; ++i) {
    Account& account = all.accounts[i];
    if (!threshold) {
      account.high = account.used;  // `pool` may be any of them. Too low a mark is no fault.
    } else if (ordinal < 0 || i == static_cast<std::size_t>(ordinal)) {
      account.threshold = ordinal >= 0 ? value : 0;
    }
  }
}

}  // namespace gpurun::client::interpose
