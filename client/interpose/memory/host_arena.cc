// HostArena: opens the arena at its first use, and maps a block in both processes.
#include "client/interpose/memory/host_arena.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.h"
#include "client/host_memory/arena_blocks.h"
#include "client/host_memory/arena_file.h"
#include "client/process/fork_guard.h"
#include "client/process/thread.h"
#include "protocol/calls/host_arena.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

using protocol::HostBlock;
using protocol::HostBlockKind;

// Where an arena may lie, best first. The first places are away from where Linux puts programs and
// libraries, from windows of device memory, and from what AddressSanitizer uses. ThreadSanitizer,
// and processors with addresses of 39 bits, have only the last one.
struct Place {
  std::uint64_t base;
  std::uint64_t span;
};
constexpr Place kPlaces[] = {
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
  ArenaFile file;                 // From kOpen on constant.
  std::size_t place = 0;          // Of kPlaces. Constant once a block is mapped.
  std::optional<ArenaBlocks> blocks;  // From kOpen on.
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

// On a thread of ours, with its signals blocked, because no child may be made meanwhile.
struct Opening {
  Session& session;
  ArenaFile file;
  Status status;

  static void* run(void* of) {
    auto& opening = *static_cast<Opening*>(of);
    Result<ArenaFile> made =
        ArenaFile::make(limits::kHostArenaBytes, opening.session.descriptor_min());
    opening.status = made.status();
    if (!made.ok()) return nullptr;
    opening.file = *std::move(made);
    opening.status = opening.session.offer_host_memory(opening.file.fd());
    return nullptr;
  }
};

// The mutex is held, except while this thread waits for the worker.
void open(const EntryContext& here, Arena& all, std::unique_lock<std::mutex>& lock) {
  Opening opening{here.session(), {}, {}};
  lock.unlock();
  Thread thread;
  const Status started = thread.start("gpurun-arena", &Opening::run, &opening);
  if (started.ok()) {
    thread.join();
  } else {
    opening.status = started;
  }
  lock.lock();
  all.state = opening.status.ok() ? State::kOpen : State::kNone;
  if (all.state == State::kNone) {
    GPURUN_LOG(kInfo, "the device cannot reach host memory: %s", opening.status.message().c_str());
    return;
  }
  all.file = std::move(opening.file);
  all.blocks.emplace(kPlaces[0].base, kPlaces[0].span);
}

HostBlock message(HostBlockKind kind, const ArenaBlocks::Block& block, const Place& place) {
  HostBlock payload;
  payload.kind = kind;
  payload.address = block.address;
  payload.offset = block.address - place.base;
  payload.bytes = block.bytes;
  payload.span = place.span;
  return payload;
}

// Maps the block here and in the worker. Returns 0, or the CUresult of the worker. `*earlier`
// becomes the failure of an earlier call, if one is known now, or the end of the session.
int map(const EntryContext& here, std::uint16_t code, const ArenaFile& file,
        const ArenaBlocks::Block& block, const Place& place, int* earlier) {
  const Status mapped = file.map(block.address, block.address - place.base, block.bytes);
  if (mapped.code() == Code::kUnavailable) return CUDA_ERROR_ALREADY_MAPPED;
  if (!mapped.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  const HostBlock payload = message(HostBlockKind::kMap, block, place);
  CallSite site = here.passing_site();
  site.opcode = code;
  site.form = protocol::Form::kRaw;
  site.work = Work::kNone;
  Reply reply;
  reply.result = -1;  // Not answered.
  const int result = here.session().call(*here.lane, site, bytes_of(payload), &reply);
  if (reply.result != 0) ArenaFile::unmap(block.address, block.bytes);
  if (result != reply.result && *earlier == 0) *earlier = result;
  return reply.result;
}

// Waits for the worker, so that no other block is mapped there before. Returns the failure of an
// earlier call, or 0.
int unmap(const EntryContext& here, const ArenaBlocks::Block& block, const Place& place) {
  const HostBlock payload = message(HostBlockKind::kUnmap, block, place);
  CallSite site = here.passing_site();
  site.opcode = opcode::cuMemFreeHost;
  site.form = protocol::Form::kRaw;
  site.order = protocol::Order::kOrderedHost;
  site.context = block.context;
  site.work = Work::kNone;
  Reply reply;
  const int result = here.session().call(*here.lane, site, bytes_of(payload), &reply);
  ArenaFile::unmap(block.address, block.bytes);
  return reply.result == 0 ? result : 0;
}

// For the only thread that lets the arena grow. `lock` as for open(). Returns the address of an
// allocation in a new block, or 0.
std::uint64_t grow(const EntryContext& here, std::uint16_t code, Arena& all,
                   std::unique_lock<std::mutex>& lock, std::uint64_t bytes, int* earlier) {
  if (all.state == State::kUnopened) open(here, all, lock);
  if (all.state == State::kNone) return 0;
  const bool placed = all.blocks->was_used();
  for (int tries = 0; tries < kTriesMax; ++tries) {
    const auto block = all.blocks->propose(here.context->handle, bytes);
    if (!block.has_value()) return 0;
    const Place place = kPlaces[all.place];
    lock.unlock();
    const int result = map(here, code, all.file, *block, place, earlier);
    lock.lock();
    if (result == 0) return all.blocks->add(*block, bytes);
    if (result != CUDA_ERROR_ALREADY_MAPPED) {
      all.blocks->give_back(*block);
      GPURUN_LOG(kInfo, "%llu bytes of host memory stay out of the device's reach (error %d)",
                 static_cast<unsigned long long>(bytes), result);
      return 0;
    }
    all.blocks->avoid(*block);
    // Nothing lies in the first place yet.
    if (!placed && all.place + 1 < std::size(kPlaces)) {
      const Place& next = kPlaces[++all.place];
      all.blocks.emplace(next.base, next.span);
    }
  }
  return 0;
}

// This thread lets the arena grow. The mutex is held at both ends.
class Growing {
 public:
  explicit Growing(Arena& all) : all_(all) { all_.growing = true; }
  ~Growing() {
    all_.growing = false;
    all_.grown.notify_all();
  }
  Growing(const Growing&) = delete;
  Growing& operator=(const Growing&) = delete;

 private:
  Arena& all_;
};

}  // namespace

bool may_have_host_arena(const Process& process) noexcept {
  return process.session->may_offer_host_memory();
}

std::uint64_t allocate_in_arena(const EntryContext& here, std::uint16_t code, std::uint64_t bytes,
                                int* earlier) {
  *earlier = 0;
  Arena& all = arena();
  if (bytes > limits::kHostBlockBytesMax || !may_have_host_arena(*here.process)) return 0;
  std::unique_lock<std::mutex> lock(all.mutex);
  std::uint64_t address = 0;
  for (;;) {
    if (all.state == State::kOpen) address = all.blocks->allocate(here.context->handle, bytes);
    if (address != 0 || all.state == State::kNone || !all.growing) break;
    all.grown.wait(lock);
  }
  if (address == 0 && all.state != State::kNone) {
    const Growing growing(all);
    address = grow(here, code, all, lock, bytes, earlier);
  }
  if (address != 0) here.session().begin_device_reach();
  return address;
}

int free_in_arena(const EntryContext& here, std::uint64_t address) {
  Arena& all = arena();
  std::optional<ArenaBlocks::Block> unused;
  Place place{};
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (all.state != State::kOpen) return 0;
    unused = all.blocks->release(address);
    place = kPlaces[all.place];
  }
  here.session().end_device_reach();
  if (!unused.has_value()) return 0;
  const int earlier = unmap(here, *unused, place);
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.blocks->give_back(*unused);
  return earlier;
}

void end_arena_of_context(const EntryContext& here, Handle context, std::size_t ranges, bool used) {
  Arena& all = arena();
  std::vector<ArenaBlocks::Block> blocks;
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (all.state != State::kOpen) return;
    blocks = all.blocks->take_context(context);
  }
  for (std::size_t range = 0; range < ranges; ++range) here.session().end_device_reach();
  if (used) return;
  for (const ArenaBlocks::Block& block : blocks) ArenaFile::unmap(block.address, block.bytes);
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const ArenaBlocks::Block& block : blocks) all.blocks->give_back(block);
}

}  // namespace gpurun::client::interpose
