// FreeRanges: which addresses are free. Best fit by size, neighbours are
// merged. A book only: it touches no memory and calls nobody. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace gpurun::client {

class FreeRanges {
 public:
  // The start of `bytes` (over 0) that are free no more; 0: there is no range so large. Of ranges
  // that fit equally well the lowest.
  std::uint64_t take(std::uint64_t bytes);
  // Free from now on; what take() gave, a part of it, or more memory.
  void give(std::uint64_t start, std::uint64_t bytes);

  // All of it is free now, and exists no more.
  void remove(std::uint64_t start, std::uint64_t bytes);

  // How many bytes before `end` are free; 0: none right before it.
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
