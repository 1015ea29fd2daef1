// FreeRanges: the free addresses. Best fit by size, and neighbours are merged. It keeps records
// only, touches no memory and calls nothing. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace gpurun::client {

class FreeRanges {
 public:
  // Takes `bytes` (over 0) and returns their start, or 0 if no range is so large. Of ranges that
  // fit equally well it takes the lowest.
  std::uint64_t take(std::uint64_t bytes);
  // Makes a range free. It may be what take() returned, a part of that, or more memory.
  void give(std::uint64_t start, std::uint64_t bytes);

  // The range is free now, and exists no more.
  void remove(std::uint64_t start, std::uint64_t bytes);

  // Returns how many bytes right before `end` are free.
  std::uint64_t before(std::uint64_t end) const;
  std::uint64_t largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  std::size_t count() const { return by_start_.size(); }

 private:
  using ByStart = std::map<std::uint64_t, std::uint64_t>;  // Start to bytes.
  void erase(ByStart::iterator at);

  ByStart by_start_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  // Bytes, start.
};

}  // namespace gpurun::client
