// Reservation and commitment of a block's shared memory.
#include "emulated/engine/shared_window.h"

#include <sys/mman.h>

#include "emulated/engine/sanitizers.h"

namespace gpurun::emulated {

namespace {
constexpr std::size_t kPage = 4096;
// Includes a wide access at the last offset.
[[maybe_unused]] constexpr std::size_t kFull = (std::size_t{1} << 32) + kPage;
// Where addresses are scarce (RLIMIT_AS, ThreadSanitizer's narrow ranges).
constexpr std::size_t kSmall = std::size_t{1} << 20;
}  // namespace

SharedWindow::~SharedWindow() {
  if (base_ != nullptr) munmap(base_, reserved_);
}

bool SharedWindow::reserve() {
#ifdef GPURUN_TSAN
  constexpr std::size_t kSizes[] = {kSmall};
#else
  constexpr std::size_t kSizes[] = {kFull, kSmall};
#endif
  for (const std::size_t bytes : kSizes) {
    void* memory =
        mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) continue;
    base_ = static_cast<std::uint8_t*>(memory);
    reserved_ = bytes;
    return true;
  }
  return false;
}

bool SharedWindow::commit(std::size_t bytes) {
  if (base_ == nullptr && !reserve()) return false;
  if (bytes <= committed_) return true;
  const std::size_t wanted = (bytes + kPage - 1) & ~(kPage - 1);
  if (wanted + kPage > reserved_) return false;
  if (mprotect(base_, wanted, PROT_READ | PROT_WRITE) != 0) return false;
  committed_ = wanted;
  return true;
}

bool SharedWindow::contains(std::uint64_t address) const {
  const auto base = reinterpret_cast<std::uint64_t>(base_);
  return base_ != nullptr && address >= base && address < base + reserved_;
}

}  // namespace gpurun::emulated
