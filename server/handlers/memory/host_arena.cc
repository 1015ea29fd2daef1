// HostArena: a block is claimed under the mutex, and mapped and registered without it.
#include "server/handlers/memory/host_arena.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "protocol/limits.h"
#include "server/driver/error_numbers.h"
#include "server/handlers/state/handler_state.h"

namespace gpurun::server {
namespace {

using protocol::HostBlock;
using protocol::HostBlockKind;

void* pointer_to(std::uint64_t address) { return reinterpret_cast<void*>(address); }

std::uint64_t half_of_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  return pages <= 0 ? 0 : static_cast<std::uint64_t>(pages) / 2 * protocol::kHostPageBytes;
}

bool is_sound(const HostBlock& block) {
  constexpr std::uint64_t kPart = protocol::kHostPageBytes - 1;
  return block.reserved == 0 && block.bytes != 0 && block.bytes <= limits::kHostBlockBytesMax &&
         ((block.address | block.offset | block.bytes | block.span) & kPart) == 0 &&
         block.span <= limits::kHostArenaBytes && block.offset <= block.span &&
         block.bytes <= block.span - block.offset && block.address > block.offset &&
         block.address - block.offset + block.span > block.address - block.offset;
}

// The place is reserved, so that this replaces nothing but the reservation.
bool map_block(const HostBlock& block, int file) {
  const bool copy = block.kind == HostBlockKind::kMirror;
  const int flags = copy ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  return mmap(pointer_to(block.address), block.bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED,
              copy ? -1 : file, copy ? 0 : static_cast<off_t>(block.offset)) != MAP_FAILED;
}

void reserve(std::uint64_t address, std::uint64_t bytes) {
  (void)mmap(pointer_to(address), bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace

HostArena::HostArena(const CudaDriver& driver) : driver_(driver), bytes_max_(half_of_memory()) {}

Status HostArena::adopt(UniqueFd file) {
  struct stat about = {};
  if (fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
      about.st_size != static_cast<off_t>(limits::kHostArenaBytes)) {
    return Status(Code::kInvalidArgument, "no memory file of the size of a host arena");
  }
  const std::lock_guard lock(mutex_);
  if (file_.valid()) return Status(Code::kInvalidArgument, "a session has one host arena");
  file_ = std::move(file);
  return {};
}

// A hint in place of a fixed address, because older kernels do not know MAP_FIXED_NOREPLACE.
int HostArena::reserve_place(const HostBlock& block) {
  const std::uint64_t base = block.address - block.offset;
  if (base_ != 0) return base == base_ && block.span == span_ ? 0 : int{CUDA_ERROR_INVALID_VALUE};
  void* const got = mmap(pointer_to(base), block.span, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got != pointer_to(base)) {
    if (got != MAP_FAILED) munmap(got, block.span);
    return CUDA_ERROR_ALREADY_MAPPED;
  }
  base_ = base;
  span_ = block.span;
  return 0;
}

int HostArena::claim(const HostBlock& block, std::uint64_t context) {
  const bool copy = block.kind == HostBlockKind::kMirror;
  const std::uint64_t cost = copy ? 2 * block.bytes : block.bytes;
  const std::lock_guard lock(mutex_);
  if (!copy && !file_.valid()) return CUDA_ERROR_INVALID_VALUE;
  if (blocks_.size() >= limits::kHostBlocksMax || cost > bytes_max_ || bytes_ > bytes_max_ - cost) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (const int refused = reserve_place(block); refused != 0) return refused;
  const auto next = blocks_.lower_bound(block.address);
  const bool overlaps = (next != blocks_.end() && next->first - block.address < block.bytes) ||
                        (next != blocks_.begin() &&
                         block.address - std::prev(next)->first < std::prev(next)->second.bytes);
  if (overlaps) return CUDA_ERROR_INVALID_VALUE;
  blocks_.emplace_hint(next, block.address, Block{block.bytes, context, true, cost});
  bytes_ += cost;
  return 0;
}

void HostArena::drop(std::uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  bytes_ -= found->second.cost;
  blocks_.erase(found);
}

int HostArena::map(const HostBlock& block, std::uint64_t context) {
  if (!is_sound(block)) return CUDA_ERROR_INVALID_VALUE;
  if (const int refused = claim(block, context); refused != 0) return refused;
  // The file stays open to the end of the process.
  int result = map_block(block, file_.get()) ? 0 : int{CUDA_ERROR_OUT_OF_MEMORY};
  if (result == 0) {
    result = GPURUN_DRIVER(driver_, cuMemHostRegister_v2, pointer_to(block.address), block.bytes,
                           CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    // The program uses one address for both.
    CUdeviceptr device = 0;
    if (result == 0 && (GPURUN_DRIVER(driver_, cuMemHostGetDevicePointer_v2, &device,
                                      pointer_to(block.address), 0U) != 0 ||
                        device != block.address)) {
      (void)GPURUN_DRIVER(driver_, cuMemHostUnregister, pointer_to(block.address));
      result = CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  if (result == 0 && block.kind == HostBlockKind::kMirror &&
      !mirror_.add(block.address, block.bytes)) {
    (void)GPURUN_DRIVER(driver_, cuMemHostUnregister, pointer_to(block.address));
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != 0) {
    reserve(block.address, block.bytes);
    drop(block.address);
    return result;
  }
  memory_.add(block.address, block.bytes);
  const std::lock_guard lock(mutex_);
  blocks_.at(block.address).busy = false;
  return 0;
}

int HostArena::unmap(const HostBlock& block, std::uint64_t context) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(block.address);
    if (found == blocks_.end() || found->second.busy || found->second.context != context ||
        found->second.bytes != block.bytes) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    found->second.busy = true;
  }
  memory_.remove(block.address);
  mirror_.remove(block.address);
  const int result = GPURUN_DRIVER(driver_, cuMemHostUnregister, pointer_to(block.address));
  reserve(block.address, block.bytes);
  drop(block.address);
  return result;
}

int HostArena::write(ByteView pieces) {
  std::uint64_t base = 0, span = 0;
  {
    const std::lock_guard lock(mutex_);
    base = base_;
    span = span_;
  }
  return mirror_.write(pieces, base, span);
}

void HostArena::context_ended(std::uint64_t context) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [address, block] : blocks_) {
      if (block.context != context || block.busy) continue;
      block.busy = true;
      ended.emplace_back(address, block.bytes);
    }
  }
  for (const auto& [address, bytes] : ended) {
    memory_.remove(address);
    mirror_.remove(address);
    reserve(address, bytes);
    drop(address);
  }
}

namespace {

bool read(const Call& call, HostBlock* block) {
  if (call.payload().size() != sizeof *block) return false;
  std::memcpy(block, call.payload().data(), sizeof *block);
  return call.header().context != 0;
}

bool maps(const HostBlock& block) {
  return block.kind == HostBlockKind::kMap || block.kind == HostBlockKind::kMirror;
}

CallOutcome run_map(Call& call) {
  HostBlock block;
  if (call.header().form != protocol::Form::kRaw || !call.awaited() || !read(call, &block) ||
      !maps(block)) {
    return CallOutcome::done(CUDA_ERROR_INVALID_VALUE);
  }
  // Pinning may take long.
  return CallOutcome::park([](Call& parked) {
    HostBlock wanted;
    std::memcpy(&wanted, parked.payload().data(), sizeof wanted);
    return HandlerState::of(parked).host_arena().map(wanted, parked.header().context);
  });
}

// On a thread that may block.
CallOutcome run_unmap(Call& call) {
  HostBlock block;
  if (call.header().form != protocol::Form::kRaw || !call.awaited() ||
      call.header().order != protocol::Order::kOrderedHost || !read(call, &block) ||
      block.kind != HostBlockKind::kUnmap) {
    return CallOutcome::done(CUDA_ERROR_INVALID_VALUE);
  }
  return CallOutcome::done(HandlerState::of(call).host_arena().unmap(block, call.header().context));
}

}  // namespace

void add_host_arena_handlers(Handlers& handlers) {
  for (const char* const row : {"cuMemHostAlloc", "cuMemAllocHost_v2", "cuMemAllocManaged"}) {
    set_handler(handlers, row, &run_map);
  }
  set_handler(handlers, "cuMemFreeHost", &run_unmap);
  set_handler(handlers, "cuMemHostGetDevicePointer_v2", &run_host_mirror);
}

}  // namespace gpurun::server
