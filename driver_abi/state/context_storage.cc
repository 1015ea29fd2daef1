// Context storage: a hash table of (context, key) with lock-free readers, by a sequence lock over
// atomic slots.
#include "driver_abi/state/context_storage.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <span>

namespace gpurun::driver_abi {
namespace {

// One value. All fields are atomic, because readers look while a writer may write. The sequence
// number reveals that to a reader. `order` is 0 in a free slot.
struct Slot {
  std::atomic<CUcontext> context;
  std::atomic<void*> key;
  std::atomic<void*> value;
  std::atomic<ContextStorageDestructor> destructor;
  std::atomic<std::uint64_t> order;
};

struct Table {
  std::size_t mask;  // Slots minus 1. Slots are a power of two, at most half full.
  Slot* slots;
  Table* outgrown;  // The table before this one. Readers without a lock may still walk it.
};

struct Storage {
  std::mutex writers;
  std::atomic<std::uint64_t> sequence;  // Odd during a write.
  std::atomic<Table*> table;
  std::size_t live_count;
  std::uint64_t last_order;
};

// Zero at load, never destroyed. A replaced table is never freed, because a reader may still be in
// it. All replaced tables together are smaller than the newest.
constinit Storage storage{};

constexpr std::size_t kFirstSlots = 64;
constexpr unsigned kReadsBeforeLocking = 4096;

std::size_t hash_of(CUcontext context, void* key) {
  auto bits = reinterpret_cast<std::uintptr_t>(context) * 0x9e3779b97f4a7c15U;
  bits ^= reinterpret_cast<std::uintptr_t>(key) * 0xc2b2ae3d27d4eb4fU;
  return bits ^ (bits >> 29);
}

// The slot of (context, key), or nullptr. A table is never full, so the walk ends. A reader that
// races with a writer walks at most once around.
Slot* find(const Table* table, CUcontext context, void* key) {
  if (table == nullptr) return nullptr;
  std::size_t at = hash_of(context, key) & table->mask;
  for (std::size_t i = 0; i <= table->mask; ++i, at = (at + 1) & table->mask) {
    Slot& slot = table->slots[at];
    if (slot.order.load(std::memory_order_acquire) == 0) return nullptr;
    if (slot.context.load(std::memory_order_acquire) == context &&
        slot.key.load(std::memory_order_acquire) == key)
      return &slot;
  }
  return nullptr;
}

// Writers hold the mutex and make readers retry. The release stores below keep the odd sequence
// number before them.
class WriteScope {
 public:
  WriteScope() : lock_(storage.writers) {
    storage.sequence.store(storage.sequence.load(std::memory_order_relaxed) + 1,
                           std::memory_order_relaxed);
  }
  ~WriteScope() {
    storage.sequence.store(storage.sequence.load(std::memory_order_relaxed) + 1,
                           std::memory_order_release);
  }
  WriteScope(const WriteScope&) = delete;
  WriteScope& operator=(const WriteScope&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
};

struct Value {
  CUcontext context;
  void* key;
  void* value;
  ContextStorageDestructor destructor;
  std::uint64_t order;
};

Value load(const Slot& slot) {
  return {slot.context.load(std::memory_order_acquire), slot.key.load(std::memory_order_acquire),
          slot.value.load(std::memory_order_acquire),
          slot.destructor.load(std::memory_order_acquire),
          slot.order.load(std::memory_order_acquire)};
}

void store(Slot& slot, const Value& value) {
  slot.context.store(value.context, std::memory_order_release);
  slot.key.store(value.key, std::memory_order_release);
  slot.value.store(value.value, std::memory_order_release);
  slot.destructor.store(value.destructor, std::memory_order_release);
  slot.order.store(value.order, std::memory_order_release);
}

void insert(Table* table, const Value& value) {
  std::size_t at = hash_of(value.context, value.key) & table->mask;
  while (table->slots[at].order.load(std::memory_order_relaxed) != 0) at = (at + 1) & table->mask;
  store(table->slots[at], value);
}

// Makes room for one more value. False without memory. The writer's lock must be held.
bool reserve_one() {
  Table* old = storage.table.load(std::memory_order_relaxed);
  const std::size_t old_slots = old == nullptr ? 0 : old->mask + 1;
  if (2 * (storage.live_count + 1) <= old_slots) return true;
  const std::size_t new_slots = old_slots == 0 ? kFirstSlots : 2 * old_slots;
  auto* slots = new (std::nothrow) Slot[new_slots]();
  auto* table = new (std::nothrow) Table{new_slots - 1, slots, old};
  if (slots == nullptr || table == nullptr) {
    delete[] slots;
    delete table;
    return false;
  }
  for (std::size_t i = 0; i < old_slots; ++i) {
    const Value value = load(old->slots[i]);
    if (value.order != 0) insert(table, value);
  }
  storage.table.store(table, std::memory_order_release);
  return true;
}

// Empties `slot` and closes the gap, so that no walk ends too early. The writer's lock must be
// held.
void remove(Table* table, Slot* slot) {
  store(*slot, Value{});
  --storage.live_count;
  auto at = static_cast<std::size_t>(slot - table->slots);
  for (;;) {
    at = (at + 1) & table->mask;
    const Value value = load(table->slots[at]);
    if (value.order == 0) return;
    store(table->slots[at], Value{});
    insert(table, value);
  }
}

// Removes the oldest values of `context`, at most `capacity`. Returns their number, in order.
std::size_t take_oldest(CUcontext context, Value* taken, std::size_t capacity) {
  const auto older = [](const Value& a, const Value& b) { return a.order < b.order; };
  const WriteScope scope;
  Table* table = storage.table.load(std::memory_order_relaxed);
  std::size_t count = 0;
  for (std::size_t i = 0; table != nullptr && i <= table->mask; ++i) {
    const Value value = load(table->slots[i]);
    if (value.order == 0 || value.context != context) continue;
    if (count == capacity) {
      if (!older(value, taken[0])) continue;
      std::pop_heap(taken, taken + count--, older);
    }
    taken[count++] = value;
    std::push_heap(taken, taken + count, older);
  }
  std::sort_heap(taken, taken + count, older);
  for (std::size_t i = 0; i < count; ++i) remove(table, find(table, context, taken[i].key));
  return count;
}

bool read_once(CUcontext context, void* key, void** value, bool* found) {
  const std::uint64_t before = storage.sequence.load(std::memory_order_acquire);
  if ((before & 1) != 0) return false;
  const Slot* slot = find(storage.table.load(std::memory_order_acquire), context, key);
  void* read = slot == nullptr ? nullptr : slot->value.load(std::memory_order_acquire);
  if (storage.sequence.load(std::memory_order_relaxed) != before) return false;
  *found = slot != nullptr;
  if (slot != nullptr) *value = read;
  return true;
}

}  // namespace

CUresult put_context_storage(CUcontext context, void* key, void* value,
                             ContextStorageDestructor destructor) noexcept {
  const WriteScope scope;
  if (Slot* slot = find(storage.table.load(std::memory_order_relaxed), context, key)) {
    store(*slot, {context, key, value, destructor, slot->order.load(std::memory_order_relaxed)});
    return CUDA_SUCCESS;
  }
  if (storage.live_count >= kContextStorageMax || !reserve_one()) return CUDA_ERROR_OUT_OF_MEMORY;
  insert(storage.table.load(std::memory_order_relaxed),
         {context, key, value, destructor, ++storage.last_order});
  ++storage.live_count;
  return CUDA_SUCCESS;
}

CUresult get_context_storage(CUcontext context, void* key, void** value) noexcept {
  bool found = false;
  unsigned reads = 0;
  while (!read_once(context, key, value, &found)) {
    if (++reads < kReadsBeforeLocking) continue;
    // A writer was preempted during its write. Block on its lock once.
    const std::lock_guard<std::mutex> lock(storage.writers);
    const Slot* slot = find(storage.table.load(std::memory_order_relaxed), context, key);
    found = slot != nullptr;
    if (found) *value = slot->value.load(std::memory_order_relaxed);
    break;
  }
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult erase_context_storage(CUcontext context, void* key) noexcept {
  const WriteScope scope;
  Table* table = storage.table.load(std::memory_order_relaxed);
  Slot* slot = find(table, context, key);
  if (slot == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  remove(table, slot);
  return CUDA_SUCCESS;
}

void drop_context_storage(CUcontext context) noexcept {
  // A destructor may set a value again. A library that always does must not block the caller
  // forever.
  constexpr std::size_t kBatch = 256;
  for (std::size_t round = 0; round <= kContextStorageMax / kBatch; ++round) {
    Value values[kBatch];
    const std::size_t count = take_oldest(context, values, kBatch);
    for (const Value& value : std::span(values, count)) {
      if (value.destructor != nullptr) value.destructor(value.context, value.key, value.value);
    }
    if (count == 0) return;
  }
}

}  // namespace gpurun::driver_abi
