// HandleTable: the slots, each with its handle, generation and object.
#include "client/log/handles.h"

#include "base/zeroed_array.h"
#include "protocol/calls/handle_form.h"

namespace gpurun::client {
namespace {

// An index is reused only after this many others have been retired. A program that uses a handle
// just after its end then gets an error even when a generation's 2^28 values wrap around.
constexpr std::size_t kRestingIndexes = 1024;

Handle compose(HandleKind kind, std::uint32_t generation, std::uint32_t index) {
  return protocol::kHandleTag << protocol::kHandleTagShift |
         static_cast<std::uint64_t>(kind) << protocol::kHandleKindShift |
         static_cast<std::uint64_t>(generation) << protocol::kHandleGenerationShift | index;
}

}  // namespace

HandleTable::~HandleTable() {
  for (auto& chunk : chunks_) free_zeroed(chunk.load(std::memory_order_relaxed));
}

Handle HandleTable::mint(HandleKind kind, Handle context, void* object) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::uint32_t index;
  const std::size_t resting = free_.size() - free_head_;
  if (resting > kRestingIndexes || (resting != 0 && used_ == limits::kHandlesMax)) {
    index = free_[free_head_++];
    if (free_head_ == free_.size()) {
      free_.clear();
      free_head_ = 0;
    } else if (free_head_ > 4 * kRestingIndexes && free_head_ > free_.size() / 2) {
      free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(free_head_));
      free_head_ = 0;
    }
  } else if (used_ < limits::kHandlesMax) {
    index = used_++;
  } else {
    return 0;
  }
  std::atomic<Slot*>& chunk = chunks_[index / kChunkSlots];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    Slot* const made = make_zeroed<Slot>(kChunkSlots);
    if (made == nullptr) {
      --used_;  // Only a new index can be the first of its chunk.
      return 0;
    }
    chunk.store(made, std::memory_order_release);
  }
  Slot& slot = chunk.load(std::memory_order_relaxed)[index % kChunkSlots];
  slot.generation = (slot.generation + 1) & protocol::kHandleGenerationMask;
  slot.context.store(context, std::memory_order_relaxed);
  slot.object.store(object, std::memory_order_relaxed);
  slot.failure.store(0, std::memory_order_relaxed);
  slot.retained = 0;
  const Handle handle = compose(kind, slot.generation, index);
  slot.handle.store(handle, std::memory_order_release);
  live_count_.fetch_add(1, std::memory_order_relaxed);
  return handle;
}

int HandleTable::check_end(Handle handle, HandleKind kind) const noexcept {
  const bool alive = claimed_kind(handle) == kind && find(handle) != nullptr;
  return alive ? 0 : driver_abi::wrong_handle_error(kind);
}

bool HandleTable::set_object(Handle handle, void* object) noexcept {
  Slot* slot = find(handle);
  if (slot == nullptr) return false;
  slot->object.store(object, std::memory_order_release);
  return true;
}

void HandleTable::poison(Handle handle, int result) noexcept {
  if (Slot* slot = find(handle)) slot->failure.store(result, std::memory_order_release);
}

void* HandleTable::retire(Handle handle) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  return end(find(handle), handle);
}

void HandleTable::retain(Handle handle) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Slot* slot = find(handle)) ++slot->retained;
}

void* HandleTable::release(Handle handle) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  Slot* slot = find(handle);
  if (slot == nullptr || slot->retained == 0) return end(slot, handle);
  --slot->retained;
  return nullptr;
}

void* HandleTable::end(Slot* slot, Handle handle) noexcept {
  if (slot == nullptr) return nullptr;
  void* object = slot->object.load(std::memory_order_relaxed);
  slot->handle.store(0, std::memory_order_release);
  free_.push_back(static_cast<std::uint32_t>(handle & protocol::kHandleIndexMask));
  live_count_.fetch_sub(1, std::memory_order_relaxed);
  return object;
}

void HandleTable::retire_context(Handle context, Visitor visit, void* user) noexcept {
  std::uint32_t used;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    used = used_;
  }
  for (std::uint32_t index = 0; index < used; ++index) {
    Slot* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
    if (chunk == nullptr) continue;
    Slot& slot = chunk[index % kChunkSlots];
    const Handle handle = slot.handle.load(std::memory_order_acquire);
    if (handle == 0 || handle == context) continue;
    if (slot.context.load(std::memory_order_relaxed) != context) continue;
    if (visit != nullptr) {
      visit(user, claimed_kind(handle), handle, slot.object.load(std::memory_order_relaxed));
    }
    retire(handle);
  }
}

}  // namespace gpurun::client
