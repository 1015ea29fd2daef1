// BulkWindow: slots that are free, under way, or both at once for a moment.
#include "client/bulk/bulk_window.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

namespace gpurun::client {

BulkWindow::~BulkWindow() {
  if (memory_ != nullptr) munmap(memory_, limits::kBulkWindowBytes);
}

Status BulkWindow::map() {
  // Only address space: pages come with their first use and are reused from then on.
  void* memory = mmap(nullptr, limits::kBulkWindowBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return Status(Code::kResourceExhausted, "no memory for bulk bytes");
  memory_ = static_cast<std::byte*>(memory);
  for (std::size_t slot = kSlots; slot-- > 0;) free_.push_back(slot);
  return {};
}

std::size_t BulkWindow::take() {
  const std::size_t slot = free_.back();
  free_.pop_back();
  has_memory_ = true;
  return slot;
}

bool BulkWindow::end_send(std::size_t slot) {
  const auto sent = std::find_if(sending_.begin(), sending_.end(),
                                 [slot](const Sending& each) { return each.slot == slot; });
  const bool retired = sent->retired;
  sending_.erase(sent);
  if (retired) free_.push_back(slot);
  return retired;
}

void BulkWindow::retire(std::size_t slot) {
  for (Sending& each : sending_) {
    if (each.slot != slot) continue;
    each.retired = true;
    return;
  }
  free_.push_back(slot);
}

void BulkWindow::trim(std::uint64_t begun) noexcept {
  const bool rests = std::exchange(begun_before_trim_, begun) == begun;
  const bool idle = free_.size() == kSlots;
  if (!rests || !idle || !sending_.empty() || !std::exchange(has_memory_, false)) return;
  madvise(memory_, limits::kBulkWindowBytes, MADV_DONTNEED);
}

}  // namespace gpurun::client
