// HostArena: opens the arena at its first use, finds blocks for allocations, and lets the device
// reach what it did not reach before.
#include "client/interpose/memory/host_arena.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "client/host_memory/arena_blocks.h"
#include "client/interpose/call/host_memory_choice.h"
#include "client/interpose/capture/capture.h"
#include "client/interpose/memory/arena_mapping.h"
#include "client/process/fork_guard.h"
#include "protocol/calls/host_mirror.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

// Where an arena may lie, best first. The first places are away from where Linux puts programs and
// libraries, from windows of device memory, and from what AddressSanitizer uses. ThreadSanitizer,
// and processors with addresses of 39 bits, have only the last one.
constexpr ArenaPlace kPlaces[] = {
    {std::uint64_t{0x1800} << 32, limits::kHostArenaBytes},
    {std::uint64_t{0x1a00} << 32, limits::kHostArenaBytes},
    {std::uint64_t{0x1c00} << 32, limits::kHostArenaBytes},
    {std::uint64_t{0x68} << 32, std::uint64_t{64} << 30},
};
// Blocks that are tried for one allocation, at addresses that turn out to be in use.
constexpr int kTriesMax = 8;

enum class State : std::uint8_t { kUnopened, kOpen, kNone };

struct Arena {
  std::mutex mutex;  // Guards all members below.
  State state = State::kUnopened;
  bool growing = false;           // A thread opens the arena or maps a block, without the mutex.
  std::condition_variable grown;  // It has ended.
  ArenaMapping mapping;           // From kOpen on constant.
  std::size_t place = 0;          // Of kPlaces. Constant once a block is mapped.
  std::optional<ArenaBlocks> blocks;            // From kOpen on.
  std::map<std::uint64_t, BlockMemory> copied;  // kCopied and kView blocks, by address.

  BlockMemory memory_of(const ArenaBlocks::Block& block) const {
    const auto found = copied.find(block.address);
    if (found != copied.end()) return found->second;
    return mapping.mirrored() ? BlockMemory::kPrivate : BlockMemory::kShared;
  }
};

// Never destroyed. A forked child makes its own, because a thread of the parent may hold the mutex.
std::atomic<Arena*> g_arena{nullptr};
void forget_parents_arena() { g_arena.store(nullptr, std::memory_order_release); }

Arena& arena() {
  Arena* found = g_arena.load(std::memory_order_acquire);
  if (found != nullptr) return *found;
  fork_guard::in_each_child(&forget_parents_arena);
  auto* const made = new Arena;
  if (g_arena.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *found;
}

// The mutex is held, except while this thread waits for the worker.
void open(const EntryContext& here, Arena& all, std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  const Status opened = all.mapping.open(here.session());
  lock.lock();
  all.state = opened.ok() ? State::kOpen : State::kNone;
  if (!opened.ok()) {
    GPURUN_LOG(kInfo, "the device cannot reach host memory: %s", opened.message().c_str());
    return;
  }
  all.blocks.emplace(kPlaces[0].base, kPlaces[0].span);
}

// For the only thread that lets the arena grow. `lock` as for open(). Proposes blocks for `bytes`
// until `map(block, place)` returns another CUresult than ALREADY_MAPPED. Empty: no block was
// mapped.
template <typename Map>
std::optional<ArenaBlocks::Block> map_block(const EntryContext& here, Arena& all,
                                            std::unique_lock<std::mutex>& lock, Handle context,
                                            std::uint64_t bytes, bool own, Map map) {
  if (all.state == State::kUnopened) open(here, all, lock);
  if (all.state == State::kNone) return std::nullopt;
  const bool placed = all.blocks->was_used();
  for (int tries = 0; tries < kTriesMax; ++tries) {
    const auto block = all.blocks->propose(context, bytes, own);
    if (!block.has_value()) return std::nullopt;
    const ArenaPlace place = kPlaces[all.place];
    lock.unlock();
    const int result = map(*block, place);
    lock.lock();
    if (result == 0) return block;
    if (result != CUDA_ERROR_ALREADY_MAPPED) {
      all.blocks->give_back(*block);
      GPURUN_LOG(kInfo, "%llu bytes of host memory stay out of the device's reach (error %d)",
                 static_cast<unsigned long long>(bytes), result);
      return std::nullopt;
    }
    all.blocks->avoid(*block);
    // Nothing lies in the first place yet.
    if (!placed && all.place + 1 < std::size(kPlaces)) {
      const ArenaPlace& next = kPlaces[++all.place];
      all.blocks.emplace(next.base, next.span);
    }
  }
  return std::nullopt;
}

// This thread alone lets the arena grow. The mutex is held at both ends.
class Growing {
 public:
  Growing(Arena& all, std::unique_lock<std::mutex>& lock) : all_(all) {
    while (all.growing) all.grown.wait(lock);
    all.growing = true;
  }
  ~Growing() {
    all_.growing = false;
    all_.grown.notify_all();
  }
  Growing(const Growing&) = delete;
  Growing& operator=(const Growing&) = delete;

 private:
  Arena& all_;
};

std::uint64_t whole_units(std::uint64_t bytes) {
  constexpr std::uint64_t kPart = ArenaBlocks::kUnitBytes - 1;
  return (bytes + kPart) & ~kPart;
}

std::uint64_t find_room(const EntryContext& here, std::uint16_t code, std::uint64_t bytes,
                        int* earlier) {
  Arena& all = arena();
  std::unique_lock<std::mutex> lock(all.mutex);
  std::uint64_t address = 0;
  for (;;) {
    if (all.state == State::kOpen) address = all.blocks->allocate(here.context->handle, bytes);
    if (address != 0 || all.state == State::kNone || !all.growing) break;
    all.grown.wait(lock);
  }
  if (address != 0 || all.state == State::kNone) return address;
  const Growing growing(all, lock);
  const auto map = [&](const ArenaBlocks::Block& block, const ArenaPlace& place) {
    return all.mapping.map(here, code, block, place, earlier);
  };
  const auto block = map_block(here, all, lock, here.context->handle, bytes, false, map);
  return block.has_value() ? all.blocks->add(*block, bytes) : 0;
}

// The worker gets a copy of the allocation's block, unless it has one. Returns 0, or the CUresult.
// For the only thread that lets the arena grow.
int copy_block_of(const EntryContext& here, std::uint16_t code, Arena& all,
                  std::unique_lock<std::mutex>& lock, std::uint64_t address, int* earlier) {
  const auto block = all.blocks->block_of(address);
  if (!block.has_value()) return CUDA_ERROR_INVALID_VALUE;
  if (all.memory_of(*block) != BlockMemory::kPrivate) return 0;
  const ArenaPlace place = kPlaces[all.place];
  lock.unlock();
  const int result = all.mapping.make_copy(here, code, *block, place, block->address, earlier);
  lock.lock();
  if (result == 0) all.copied[block->address] = BlockMemory::kCopied;
  return result;
}

// The device reaches an allocation of a mirrored arena from now on, unless it does already.
int begin_copy(const EntryContext& here, std::uint16_t code, std::uint64_t address,
               std::uint64_t bytes, int* earlier) {
  here.session().end_device_writes(byte_view(reinterpret_cast<const void*>(address), bytes));
  Arena& all = arena();
  std::unique_lock<std::mutex> lock(all.mutex);
  const Growing growing(all, lock);
  // Another thread may have come first.
  if (const auto now = find_range(address); now.has_value() && now->reached) return 0;
  if (const int result = copy_block_of(here, code, all, lock, address, earlier); result != 0) {
    GPURUN_LOG(kInfo, "%llu bytes of host memory stay out of the device's reach (error %d)",
               static_cast<unsigned long long>(bytes), result);
    return result;
  }
  here.session().begin_mirrored(address, whole_units(bytes), code == opcode::cuMemAllocManaged);
  here.session().begin_device_reach();
  note_reached(address);  // A new allocation has no range yet.
  return 0;
}

// The range of whole pages around registered memory.
struct PagesOf {
  explicit PagesOf(const MemoryRange& range)
      : start(range.base & ~(ArenaBlocks::kUnitBytes - 1)),
        bytes(whole_units(range.base + range.bytes - start)) {}
  std::uint64_t start;
  std::uint64_t bytes;
};

// The lines that hold the memory, at the device's addresses. Its neighbours in the first and the
// last line are sent, too, and never written.
struct LinesOf {
  LinesOf(const MemoryRange& range, std::uint64_t view)
      : address(view & ~kPart),
        bytes(((view + range.bytes + kPart) & ~kPart) - address),
        first(view - address),
        last(address + bytes - (view + range.bytes)) {}
  static constexpr std::uint64_t kPart = protocol::kMirrorLineBytes - 1;
  std::uint64_t address;
  std::uint64_t bytes;
  std::size_t first, last;  // Of the neighbours.
};

// Ends an allocation, of which nothing uses the memory. Returns 0, or an earlier failure.
int release(const EntryContext& here, std::uint64_t address) {
  Arena& all = arena();
  std::optional<ArenaBlocks::Block> unused;
  ArenaPlace place;
  BlockMemory memory{};
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (all.state != State::kOpen) return 0;
    unused = all.blocks->release(address);
    place = kPlaces[all.place];
    if (!unused.has_value()) return 0;
    memory = all.memory_of(*unused);
    all.copied.erase(unused->address);
  }
  const int earlier = ArenaMapping::unmap(here, *unused, place, memory);
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.blocks->give_back(*unused);
  return earlier;
}

// The device reaches registered memory at other addresses from now on. Returns 0 or the CUresult.
int begin_view(const EntryContext& here, const MemoryRange& range, int* earlier) {
  const PagesOf pages(range);
  here.session().end_device_writes(
      byte_view(reinterpret_cast<const void*>(range.base), range.bytes));
  Arena& all = arena();
  std::unique_lock<std::mutex> lock(all.mutex);
  const Growing growing(all, lock);
  if (const auto now = find_range(range.base); now.has_value() && now->view != 0) return 0;
  const auto map = [&](const ArenaBlocks::Block& block, const ArenaPlace& place) {
    if (const int used = ArenaMapping::reserve(block); used != 0) return used;
    const int result =
        all.mapping.make_copy(here, opcode::cuMemHostAlloc, block, place, pages.start, earlier);
    if (result != 0) ArenaMapping::unmap_here(block, BlockMemory::kView);
    return result;
  };
  const auto block = map_block(here, all, lock, range.context, pages.bytes, true, map);
  if (!block.has_value()) return CUDA_ERROR_NOT_SUPPORTED;
  (void)all.blocks->add(*block, pages.bytes);
  all.copied[block->address] = BlockMemory::kView;
  MemoryRange view = range;
  view.base = block->address + (range.base - pages.start);
  view.kind = MemoryKind::kView;
  view.in_arena = view.reached = true;
  view.host = range.base;
  if (!add_range(view)) {
    lock.unlock();
    (void)release(here, block->address);
    lock.lock();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const LinesOf lines(range, view.base);
  here.session().begin_mirrored(lines.address, lines.bytes, false, lines.first, lines.last);
  here.session().begin_device_reach();
  note_view(range.base, view.base);
  return 0;
}

}  // namespace

bool may_have_host_arena(const Process& process) noexcept {
  return process.session->may_offer_host_memory() || process.session->may_mirror_host_memory();
}

Use use_of_pinned_memory(const Process& process, unsigned flags) noexcept {
  if (process.session->may_offer_host_memory()) return Use::kByDevice;
  const bool mapped = (flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0;
  return mapped || host_memory_choice() == HostMemoryChoice::kMirrored ? Use::kByDevice
                                                                       : Use::kByCopies;
}

std::uint64_t allocate_in_arena(const EntryContext& here, std::uint16_t code, std::uint64_t bytes,
                                Use use, int* earlier) {
  *earlier = 0;
  if (bytes > limits::kHostBlockBytesMax || !may_have_host_arena(*here.process)) return 0;
  const std::uint64_t address = find_room(here, code, bytes, earlier);
  if (address == 0) return 0;
  if (!arena().mapping.mirrored()) {
    here.session().begin_device_reach();
  } else if (use == Use::kByDevice && begin_copy(here, code, address, bytes, earlier) != 0) {
    (void)release(here, address);
    return 0;
  }
  return address;
}

namespace {

// Waits until earlier copies have written to the range, so that the worker's copy gets it. They may
// be of any context.
int await_copies_into(const EntryContext& here, const MemoryRange& range) {
  const ByteView memory = byte_view(reinterpret_cast<const void*>(range.base), range.bytes);
  const auto wait = [&](Handle context) {
    if (context == 0 || context_captures(context) ||
        find_context(*here.process, context) == nullptr) {
      return 0;
    }
    CallSite site;
    site.context = context;
    site.waits = Waits::kForContext;
    return call_row(here, opcode::cuCtxSynchronize, site, {});
  };
  std::vector<Handle> contexts = {here.context->handle, range.context};
  for (const Handle context : here.session().working_contexts()) contexts.push_back(context);
  for (const Handle context : contexts) {
    if (!here.session().may_still_write(memory)) return 0;
    if (const int result = wait(context); result != 0) return result;
  }
  return 0;
}

}  // namespace

int let_device_reach(const EntryContext& here, const MemoryRange& range) {
  if (range.reached || range.view != 0) return 0;
  const bool registered = range.kind == MemoryKind::kRegistered;
  if (!here.session().may_mirror_host_memory() || (!registered && !range.in_arena)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (const int result = await_copies_into(here, range); result != 0) return result;
  int earlier = 0;
  const int result =
      registered ? begin_view(here, range, &earlier)
                 : begin_copy(here, opcode::cuMemHostAlloc, range.base, range.bytes, &earlier);
  return result != 0 ? result : earlier;
}

int end_view(const EntryContext& here, const MemoryRange& range) {
  if (range.view == 0 || !remove_range(range.view, MemoryKind::kView).has_value()) return 0;
  here.session().end_mirrored(*here.lane, LinesOf(range, range.view).address);
  here.session().end_device_reach();
  return release(here, range.view - (range.base - PagesOf(range).start));
}

std::optional<MemoryRange> find_device_range(const EntryContext& here, std::uint64_t address) {
  const auto range = find_range(address);
  if (!range.has_value() || !range->in_arena || range->reached) return range;
  (void)let_device_reach(here, *range);  // The range says whether it does.
  return find_range(address);
}

int free_in_arena(const EntryContext& here, const MemoryRange& range) {
  if (range.reached) {
    if (arena().mapping.mirrored()) here.session().end_mirrored(*here.lane, range.base);
    here.session().end_device_reach();
  }
  return release(here, range.base);
}

void end_arena_of_context(const EntryContext& here, Handle context, std::size_t ranges, bool used) {
  Arena& all = arena();
  std::vector<std::pair<ArenaBlocks::Block, BlockMemory>> blocks;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (all.state != State::kOpen) return;
    for (const ArenaBlocks::Block& block : all.blocks->take_context(context)) {
      blocks.emplace_back(block, all.memory_of(block));
      all.copied.erase(block.address);
    }
  }
  for (std::size_t range = 0; range < ranges; ++range) here.session().end_device_reach();
  for (const auto& [block, memory] : blocks) here.session().remove_host_mirror(block.address);
  if (used) return;
  for (const auto& [block, memory] : blocks) ArenaMapping::unmap_here(block, memory);
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& [block, memory] : blocks) all.blocks->give_back(block);
}

}  // namespace gpurun::client::interpose
