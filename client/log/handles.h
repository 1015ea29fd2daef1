// Handles: the values that the program holds for streams, events, modules and other objects.
//
// The client mints handles, so that a creation needs no round trip. The worker maps them to its
// driver's handles. A handle is 64 bits: tag (8), kind (6), generation (28), index (22). The tag
// makes it an address that no x86-64 or AArch64 process can map. It therefore equals no pointer,
// and a program that dereferences it stops at once. A handle is never 0, 1 or 2, which CUDA
// reserves for streams.
//
// Any thread may call everything. A lookup takes no lock. Minting and retiring take a short one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/slot_table.h"
#include "driver_abi/row.h"
#include "driver_abi/semantics/handle_errors.h"
#include "protocol/calls/handle_form.h"
#include "protocol/limits.h"

namespace gpurun::client {

using driver_abi::HandleKind;
using Handle = std::uint64_t;

// Returns the kind that `handle` claims, or kNone if it is not one of our handles. It may be dead.
inline HandleKind claimed_kind(Handle handle) noexcept {
  return protocol::claimed_handle_kind(handle);
}

class HandleTable {
 public:
  HandleTable() = default;
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  // Returns a new live handle of `kind`. `context` is the context that it belongs to, or 0.
  // `object` is the owner's pointer, which the table does not own. Returns 0 when
  // limits::kHandlesMax are alive, or when there is no memory. The caller then returns
  // CUDA_ERROR_OUT_OF_MEMORY.
  Handle mint(HandleKind kind, Handle context, void* object);

  // Returns 0 when `handle` is alive and of `kind`, and the recorded failure when it is poisoned.
  // Any other handle gives CUDA_ERROR_INVALID_HANDLE, or INVALID_CONTEXT if `kind` is a context.
  // O(1).
  int check(Handle handle, HandleKind kind) const noexcept;

  // As check(), for a call that ends the handle: a poisoned one also gives 0.
  int check_end(Handle handle, HandleKind kind) const noexcept;

  // Of a live handle. Any other gives 0 or nullptr.
  Handle context_of(Handle handle) const noexcept;
  void* object_of(Handle handle) const noexcept;
  // Replaces the object. Returns false when the handle is not alive.
  bool set_object(Handle handle, void* object) noexcept;

  // The creation failed on the server with `result` (not 0). Each later use returns `result`.
  void poison(Handle handle, int result) noexcept;

  // Ends the handle. A later handle reuses its index with another generation. Returns its object,
  // or nullptr when it was not alive.
  void* retire(Handle handle) noexcept;
  // The server returned the handle once more (allocations: cuMemRetainAllocationHandle). Each
  // retain() needs one more release().
  void retain(Handle handle) noexcept;
  // As retire(), if this is the last owner. Otherwise returns nullptr, and the handle lives on.
  void* release(Handle handle) noexcept;
  // Ends every handle of `context`, except the context's own, when the context is destroyed. Calls
  // `visit(kind, handle, object)` for each one first.
  using Visitor = void (*)(void* user, HandleKind kind, Handle handle, void* object);
  void retire_context(Handle context, Visitor visit, void* user) noexcept;

  std::size_t live_count() const noexcept { return live_count_.load(std::memory_order_relaxed); }

 private:
  struct Slot {
    std::atomic<Handle> owner{0};
    std::atomic<Handle> context{0};
    std::atomic<void*> object{nullptr};
    std::atomic<int> failure{0};
    std::uint32_t generation = 0;  // Guarded by mutex_.
    std::uint32_t retained = 0;    // Owners beside the first. Guarded by mutex_.
  };

  Slot* find(Handle handle) const noexcept;
  void* end(Slot* slot, Handle handle) noexcept;  // With mutex_ held. nullptr for nullptr.

  mutable std::mutex mutex_;
  SlotTable<Slot, limits::kHandlesMax, 4096> slots_;  // Changed under mutex_.
  // A program that uses a handle just after its end gets an error, even when a generation's 2^28
  // values wrap around: an index rests first. Guarded by mutex_.
  IndexPool<limits::kHandlesMax, 1024> indexes_;
  std::atomic<std::size_t> live_count_{0};
};

// Inline, because each call looks up a few handles.

inline HandleTable::Slot* HandleTable::find(Handle handle) const noexcept {
  if (handle >> protocol::kHandleTagShift != protocol::kHandleTag) return nullptr;
  return slots_.find(handle);
}

inline int HandleTable::check(Handle handle, HandleKind kind) const noexcept {
  if (claimed_kind(handle) != kind) return driver_abi::wrong_handle_error(kind);
  const Slot* slot = find(handle);
  if (slot == nullptr) return driver_abi::wrong_handle_error(kind);
  return slot->failure.load(std::memory_order_acquire);
}

inline Handle HandleTable::context_of(Handle handle) const noexcept {
  const Slot* slot = find(handle);
  return slot == nullptr ? 0 : slot->context.load(std::memory_order_relaxed);
}

inline void* HandleTable::object_of(Handle handle) const noexcept {
  const Slot* slot = find(handle);
  return slot == nullptr ? nullptr : slot->object.load(std::memory_order_acquire);
}

}  // namespace gpurun::client
