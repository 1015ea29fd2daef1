// Address parts: which parts of a range of addresses a set of disjoint ranges holds or leaves out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace gpurun {

struct AddressPart {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;  // Behind the last byte.
  friend bool operator==(const AddressPart&, const AddressPart&) = default;
};

// The first of `ranges` that reaches beyond `address`, or their end. They are disjoint, by their
// begin. `end_of(range)` returns the end of one of them.
template <typename Range, typename EndOf>
auto first_range_beyond(std::map<std::uint64_t, Range>& ranges, std::uint64_t address,
                        EndOf end_of) {
  auto at = ranges.upper_bound(address);
  if (at != ranges.begin() && end_of(std::prev(at)->second) > address) --at;
  return at;
}

// The parts of [begin, end) that are in none of `ranges`, in ascending order. They are disjoint, by
// their begin. `end_of(range)` returns the end of one of them.
template <typename Range, typename EndOf>
std::vector<AddressPart> parts_outside(std::map<std::uint64_t, Range>& ranges, std::uint64_t begin,
                                       std::uint64_t end, EndOf end_of) {
  std::vector<AddressPart> parts;
  for (auto at = first_range_beyond(ranges, begin, end_of); at != ranges.end() && at->first < end;
       ++at) {
    if (at->first > begin) parts.push_back({begin, at->first});
    begin = std::max(begin, end_of(at->second));
  }
  if (begin < end) parts.push_back({begin, end});
  return parts;
}

// The parts of [begin, end) that are in `ranges`, in ascending order. Each is in one range.
template <typename Range, typename EndOf>
std::vector<AddressPart> parts_inside(std::map<std::uint64_t, Range>& ranges, std::uint64_t begin,
                                      std::uint64_t end, EndOf end_of) {
  std::vector<AddressPart> parts;
  for (auto at = first_range_beyond(ranges, begin, end_of); at != ranges.end() && at->first < end;
       ++at) {
    parts.push_back({std::max(begin, at->first), std::min(end, end_of(at->second))});
  }
  return parts;
}

}  // namespace gpurun
