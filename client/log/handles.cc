// HandleTable: the slots, each with its handle, generation and object.
#include "client/log/handles.h"

#include <optional>

#include "protocol/calls/handle_form.h"

namespace gpurun::client {
namespace {

Handle compose(HandleKind kind, std::uint32_t generation, std::uint32_t index) {
  return protocol::kHandleTag << protocol::kHandleTagShift |
         static_cast<std::uint64_t>(kind) << protocol::kHandleKindShift |
         static_cast<std::uint64_t>(generation) << protocol::kHandleGenerationShift | index;
}

}  // namespace

Handle HandleTable::mint(HandleKind kind, Handle context, void* object) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::optional<std::uint32_t> index = indexes_.take();
  if (!index) return 0;
  Slot* const slot = slots_.make(*index);
  if (slot == nullptr) {
    indexes_.undo_take();
    return 0;
  }
  slot->generation = (slot->generation + 1) & protocol::kHandleGenerationMask;
  slot->context.store(context, std::memory_order_relaxed);
  slot->object.store(object, std::memory_order_relaxed);
  slot->failure.store(0, std::memory_order_relaxed);
  slot->retained = 0;
  const Handle handle = compose(kind, slot->generation, *index);
  slot->owner.store(handle, std::memory_order_release);
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
  slot->owner.store(0, std::memory_order_release);
  indexes_.give_back(static_cast<std::uint32_t>(slots_.index_of(handle)));
  live_count_.fetch_sub(1, std::memory_order_relaxed);
  return object;
}

void HandleTable::retire_context(Handle context, Visitor visit, void* user) noexcept {
  std::uint32_t used;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    used = indexes_.used();
  }
  for (std::uint32_t index = 0; index < used; ++index) {
    const Slot* const found = slots_.at(index);
    if (found == nullptr) continue;
    const Slot& slot = *found;
    const Handle handle = slot.owner.load(std::memory_order_acquire);
    if (handle == 0 || handle == context) continue;
    if (slot.context.load(std::memory_order_relaxed) != context) continue;
    if (visit != nullptr) {
      visit(user, claimed_kind(handle), handle, slot.object.load(std::memory_order_relaxed));
    }
    retire(handle);
  }
}

}  // namespace gpurun::client
