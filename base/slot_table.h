// SlotTable: objects by the index in a 64-bit key, which any thread finds without a lock.
//
// The lowest bits of a key are its index, and the rest tells the index's users apart. Each key
// therefore has one place, and a table has one slot for each index. Slots lie in chunks. A chunk is
// made when its first slot is claimed. It never moves and lives as long as the table, so a pointer
// to a slot stays valid. A slot begins as zero bytes, and the system backs only the pages that are
// used.
//
// Threads: find() and at() may run at any time. The functions that change the table need a lock of
// the owner, one for the table. A lookup that races with a claim of the same index finds the slot
// of the old key, of the new key, or nothing. A member that may be read after the end of its key
// must be atomic.
//
// Bounds: every key's index is below kCapacity, so a lookup of a wrong key finds nothing. A table
// with keys from a hostile peer must bound its claims, because each sparse index costs a page.
//
// Two handle tables are hash maps instead. The worker's table must find a handle while a newer
// handle has the same index. The older handle's destruction may still be queued, and the worker
// keeps the handles of an ended context (server/worker/execution). The emulated device's table
// never uses an index again (emulated/objects).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <type_traits>
#include <vector>

namespace gpurun {

// `Slot` has a member `std::atomic<std::uint64_t> owner`: the key that has the slot, 0 for a free
// one. Its initial value must be all zero bytes.
template <typename Slot, std::size_t kCapacity, std::size_t kChunkSlots>
class SlotTable {
  static_assert((kCapacity & (kCapacity - 1)) == 0, "the index is the lowest bits of a key");
  static_assert(kCapacity % kChunkSlots == 0);
  static_assert(std::is_trivially_destructible_v<Slot> && std::is_standard_layout_v<Slot>);
  static_assert(alignof(Slot) <= alignof(std::max_align_t));

 public:
  SlotTable() = default;
  SlotTable(const SlotTable&) = delete;
  SlotTable& operator=(const SlotTable&) = delete;
  ~SlotTable() {
    for (auto& chunk : chunks_) std::free(chunk.load(std::memory_order_relaxed));
  }

  static constexpr std::size_t index_of(std::uint64_t key) noexcept { return key % kCapacity; }

  // Returns the slot that `key` has, or nullptr. No slot has the key 0. Any thread.
  Slot* find(std::uint64_t key) const noexcept {
    Slot* const slot = at(index_of(key));
    const bool has = slot != nullptr && slot->owner.load(std::memory_order_acquire) == key;
    return has && key != 0 ? slot : nullptr;
  }

  // Returns the slot of an index below kCapacity, whatever its owner. nullptr: its chunk is not
  // made. Any thread.
  Slot* at(std::size_t index) const noexcept {
    Slot* const chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
    return chunk == nullptr ? nullptr : &chunk[index % kChunkSlots];
  }

  // As at(), and makes the chunk if needed. nullptr: there is no memory. With the owner's lock.
  // The caller fills the slot and then stores the key in `owner`, with release order.
  Slot* make(std::size_t index) noexcept {
    std::atomic<Slot*>& place = chunks_[index / kChunkSlots];
    if (place.load(std::memory_order_relaxed) == nullptr) {
      auto* const chunk = static_cast<Slot*>(std::calloc(kChunkSlots, sizeof(Slot)));
      if (chunk == nullptr) return nullptr;
      place.store(chunk, std::memory_order_release);
    }
    return at(index);
  }

  // Returns the slot that `key` has, and takes it from its former owner if needed. `clear` then
  // resets the other members. nullptr: `key` is 0, or there is no memory. With the owner's lock.
  template <typename Clear>
  Slot* claim(std::uint64_t key, Clear clear) noexcept {
    if (Slot* const has = find(key); has != nullptr || key == 0) return has;
    Slot* const slot = make(index_of(key));
    if (slot == nullptr) return nullptr;
    slot->owner.store(0, std::memory_order_relaxed);
    clear(*slot);
    slot->owner.store(key, std::memory_order_release);
    return slot;
  }

 private:
  std::array<std::atomic<Slot*>, kCapacity / kChunkSlots> chunks_{};
};

// IndexPool: hands out the indexes of a SlotTable. An index is handed out again only after
// kResting others have come back later, or when no new one is left. So a key that is used just
// after its end finds nothing.
//
// Guarded by the lock of the table's owner.
template <std::size_t kCapacity, std::size_t kResting>
class IndexPool {
 public:
  // Returns an index that is not taken, or nothing when all are.
  std::optional<std::uint32_t> take() {
    const std::size_t resting = free_.size() - head_;
    const bool is_last = used_ == kCapacity;
    if (resting <= kResting && !is_last) return used_++;
    if (resting == 0) return {};
    const std::uint32_t index = free_[head_++];
    if (head_ == free_.size()) {
      free_.clear();
      head_ = 0;
    } else if (head_ > 4 * kResting && head_ > free_.size() / 2) {
      free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    return index;
  }

  // The last take() returned the first index of a chunk, and the chunk cannot be made.
  void undo_take() noexcept { --used_; }

  void give_back(std::uint32_t index) { free_.push_back(index); }

  // Every index that was ever handed out is below this.
  std::uint32_t used() const noexcept { return used_; }

 private:
  std::vector<std::uint32_t> free_;  // The oldest first, from head_ on.
  std::size_t head_ = 0;
  std::uint32_t used_ = 0;
};

}  // namespace gpurun
