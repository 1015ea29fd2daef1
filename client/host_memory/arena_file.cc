// ArenaFile: the mapped blocks stand in a table that a forked child can read without a lock.
#include "client/host_memory/arena_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string>

#include "base/memory_file.h"
#include "client/process/fork_guard.h"

namespace gpurun::client {
namespace {

// Written by the thread that took `address` from 0 to kTaken, or that frees it.
struct Mapped {
  std::atomic<std::uint64_t> address{0};  // 0: free.
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
constexpr std::uint64_t kTaken = 1;
std::array<Mapped, ArenaFile::kBlocksMax> g_mapped{};
std::atomic<int> g_fd{-1};
DescriptorIdentity g_identity;  // Of g_fd. Written before it.

void* pointer_to(std::uint64_t address) { return reinterpret_cast<void*>(address); }

// Without the file, the child loses the blocks.
void copy_in_child() {
  const int fd = g_fd.exchange(-1, std::memory_order_acq_rel);
  const bool open = g_identity.holds(fd);
  for (Mapped& each : g_mapped) {
    const std::uint64_t address = each.address.exchange(0, std::memory_order_acquire);
    if (address <= kTaken) continue;
    if (!open) {
      munmap(pointer_to(address), each.bytes);
      continue;
    }
    if (mmap(pointer_to(address), each.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
             static_cast<off_t>(each.offset)) == MAP_FAILED) {
      munmap(pointer_to(address), each.bytes);
    }
  }
  if (open) close(fd);
}

Mapped* take_place() noexcept {
  for (Mapped& each : g_mapped) {
    std::uint64_t free = 0;
    if (each.address.compare_exchange_strong(free, kTaken, std::memory_order_acquire)) return &each;
  }
  return nullptr;
}

// No child may get a descriptor that it does not know of.
class ForksHeldOff {
 public:
  ForksHeldOff() { fork_guard::hold_off_forks(); }
  ~ForksHeldOff() { fork_guard::let_forks(); }
  ForksHeldOff(const ForksHeldOff&) = delete;
  ForksHeldOff& operator=(const ForksHeldOff&) = delete;
};

Status check_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    return Status(Code::kResourceExhausted, "the address space is limited (ulimit -v)");
  }
  return {};
}

}  // namespace

Result<ArenaFile> ArenaFile::make(std::uint64_t bytes, int fd_min) {
  GPURUN_RETURN_IF_ERROR(check_address_space());
  const ForksHeldOff held;
  Result<UniqueFd> made = create_sealable_memory_file("gpurun-host-memory");
  if (!made.ok()) return made.status();
  GPURUN_RETURN_IF_ERROR(size_memory_file(made->get(), bytes));
  if (fcntl(made->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Status::from_errno(errno, "sealing a memory file");
  }
  const int high = fcntl(made->get(), F_DUPFD_CLOEXEC, fd_min);
  ArenaFile file;
  file.fd_ = high >= 0 ? high : made->release();
  file.identity_ = DescriptorIdentity::of(file.fd_);
  g_identity = file.identity_;
  g_fd.store(file.fd_, std::memory_order_release);
  fork_guard::in_each_child(&copy_in_child);
  return file;
}

Status ArenaFile::map(std::uint64_t address, std::uint64_t offset,
                      std::uint64_t bytes) const noexcept {
  if (!is_open()) return Status(Code::kResourceExhausted, "the program has closed its descriptor");
  Mapped* const place = take_place();
  if (place == nullptr) return Status(Code::kResourceExhausted, "too many blocks of host memory");
  // A hint, because older kernels do not know MAP_FIXED_NOREPLACE, and ThreadSanitizer keeps that
  // flag for an address that it changes.
  void* const got = mmap(pointer_to(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_,
                         static_cast<off_t>(offset));
  if (got == pointer_to(address)) {
    place->offset = offset;
    place->bytes = bytes;
    place->address.store(address, std::memory_order_release);
    return {};
  }
  place->address.store(0, std::memory_order_release);
  if (got != MAP_FAILED) munmap(got, bytes);
  return Status(Code::kUnavailable, "the addresses are in use");
}

void ArenaFile::unmap(std::uint64_t address, std::uint64_t bytes) noexcept {
  for (Mapped& each : g_mapped) {
    std::uint64_t held = address;
    if (!each.address.compare_exchange_strong(held, kTaken, std::memory_order_acquire)) continue;
    (void)madvise(pointer_to(address), bytes, MADV_REMOVE);
    munmap(pointer_to(address), bytes);
    each.address.store(0, std::memory_order_release);
    return;
  }
}

}  // namespace gpurun::client
