// FreeRanges: the same ranges in two orders, by start and by size.
#include "client/process/free_ranges.h"

#include <iterator>

namespace gpurun::client {

void FreeRanges::erase(ByStart::iterator at) {
  by_size_.erase({at->second, at->first});
  by_start_.erase(at);
}

std::uint64_t FreeRanges::take(std::uint64_t bytes) {
  const auto fit = by_size_.lower_bound({bytes, 0});
  if (fit == by_size_.end()) return 0;
  const auto [found_bytes, start] = *fit;
  erase(by_start_.find(start));
  if (found_bytes > bytes) {
    by_start_[start + bytes] = found_bytes - bytes;
    by_size_.insert({found_bytes - bytes, start + bytes});
  }
  return start;
}

void FreeRanges::give(std::uint64_t start, std::uint64_t bytes) {
  auto next = by_start_.lower_bound(start);
  if (next != by_start_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == start) {
      start = before->first;
      bytes += before->second;
      erase(before);
    }
  }
  if (next != by_start_.end() && start + bytes == next->first) {
    bytes += next->second;
    erase(next);
  }
  by_start_[start] = bytes;
  by_size_.insert({bytes, start});
}

std::uint64_t FreeRanges::before(std::uint64_t end) const {
  const auto next = by_start_.lower_bound(end);
  if (next == by_start_.begin()) return 0;
  const auto& [start, bytes] = *std::prev(next);
  return start + bytes == end ? bytes : 0;
}

void FreeRanges::remove(std::uint64_t start, std::uint64_t bytes) {
  const auto around = std::prev(by_start_.upper_bound(start));
  const auto [base, length] = *around;
  erase(around);
  if (start > base) give(base, start - base);
  if (start + bytes < base + length) give(start + bytes, base + length - start - bytes);
}

}  // namespace gpurun::client
