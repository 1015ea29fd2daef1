// OwnedHandles: the handles that end with another one, which both ends of a session forget then.
// Nodes end with their graph. The graphs inside a node end with that node.
//
// The owner guards it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpurun::protocol {

class OwnedHandles {
 public:
  // `member` ends with `owner`. `lives(handle)` finds the members that have ended by themselves, so
  // that the list does not grow without bound while its owner lives.
  template <typename Lives>
  void add(std::uint64_t owner, std::uint64_t member, Lives lives) {
    Members& members = by_owner_[owner];
    if (members.handles.size() >= members.swept_at) {
      std::erase_if(members.handles, [&lives](std::uint64_t each) { return !lives(each); });
      members.swept_at = std::max(kSweptAtLeast, 2 * members.handles.size());
    }
    members.handles.push_back(member);
  }

  // All that ends with `owner`, at any depth. Forgets it.
  std::vector<std::uint64_t> take(std::uint64_t owner) {
    std::vector<std::uint64_t> ended;
    take_members(owner, &ended);
    for (std::size_t i = 0; i < ended.size(); ++i) take_members(ended[i], &ended);
    return ended;
  }

  std::size_t owners() const { return by_owner_.size(); }

 private:
  static constexpr std::size_t kSweptAtLeast = 64;
  struct Members {
    std::vector<std::uint64_t> handles;
    std::size_t swept_at = kSweptAtLeast;
  };

  void take_members(std::uint64_t owner, std::vector<std::uint64_t>* ended) {
    const auto found = by_owner_.find(owner);
    if (found == by_owner_.end()) return;
    const std::vector<std::uint64_t> handles = std::move(found->second.handles);
    by_owner_.erase(found);
    ended->insert(ended->end(), handles.begin(), handles.end());
  }

  std::unordered_map<std::uint64_t, Members> by_owner_;
};

}  // namespace gpurun::protocol
