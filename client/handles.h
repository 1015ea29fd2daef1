// Handles: the values that the program holds for streams, events, modules, ... They are minted in
// the client, so that a creation needs no round trip, and the worker maps them to its driver's own.
//
// A handle is 64 bits: tag (8), kind (6), generation (28), index (22). The tag makes it an address
// that no x86-64 or AArch64 process can map, so it collides with no pointer, and a program that
// dereferences it stops at once. It is never 0, 1 or 2, which CUDA reserves for streams.
//
// Any thread may call everything. A lookup takes no lock; minting and retiring take a short one.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "driver_abi/handle_errors.h"
#include "driver_abi/row.h"
#include "protocol/handle_form.h"
#include "protocol/limits.h"

namespace gpurun::client {

using driver_abi::HandleKind;
using Handle = std::uint64_t;

// CUDA_ERROR_* that this file returns (cuda.h).
inline constexpr int kHandleInvalid = 400;         // CUDA_ERROR_INVALID_HANDLE
inline constexpr int kHandleContextInvalid = 201;  // CUDA_ERROR_INVALID_CONTEXT
inline constexpr int kHandleOutOfMemory = 2;       // CUDA_ERROR_OUT_OF_MEMORY

// The kind that `handle` claims; kNone when it is no handle of ours. Says nothing about its life.
inline HandleKind claimed_kind(Handle handle) noexcept {
  return protocol::claimed_handle_kind(handle);
}

class HandleTable {
 public:
  HandleTable() = default;
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;
  ~HandleTable();

  // A new live handle of `kind`. `context` is the context it belongs to (0: none), `object`
  // whatever the owner wants to find again; the table does not own it. 0 when
  // limits::kHandlesMax are alive, or there is no memory: the caller returns
  // CUDA_ERROR_OUT_OF_MEMORY.
  Handle mint(HandleKind kind, Handle context, void* object);

  // 0 when `handle` is alive and of `kind`; the recorded failure when it is poisoned; else
  // CUDA_ERROR_INVALID_HANDLE, or INVALID_CONTEXT when a context was wanted. O(1).
  int check(Handle handle, HandleKind kind) const noexcept;

  // The same for a call that ends the handle: 0 for a poisoned one, too.
  int check_end(Handle handle, HandleKind kind) const noexcept;

  // Of a live handle; 0 / nullptr for any other.
  Handle context_of(Handle handle) const noexcept;
  void* object_of(Handle handle) const noexcept;
  // nullptr replaced by what the owner learned later. False when the handle is not alive.
  bool set_object(Handle handle, void* object) noexcept;

  // The creation failed on the server with `result` (not 0): each use returns it from now on.
  void poison(Handle handle, int result) noexcept;

  // Ends the handle; its index comes back later under another generation. Returns its object, or
  // nullptr when it was not alive.
  void* retire(Handle handle) noexcept;
  // The server returned it once more, to be released once more (allocations:
  // cuMemRetainAllocationHandle): so many more calls of release() are needed.
  void retain(Handle handle) noexcept;
  // As retire(), for the last owner; nullptr, and the handle lives on, for others.
  void* release(Handle handle) noexcept;
  // Ends every handle whose context is `context` (its destruction) but not the context's own.
  // Calls `visit(kind, handle, object)` for each first.
  using Visitor = void (*)(void* user, HandleKind kind, Handle handle, void* object);
  void retire_context(Handle context, Visitor visit, void* user) noexcept;

  std::size_t live_count() const noexcept { return live_count_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kChunkSlots = 4096;
  static constexpr std::size_t kChunks = limits::kHandlesMax / kChunkSlots;

  // Begins as zero bytes (make_zeroed()).
  struct Slot {
    std::atomic<Handle> handle{0};  // 0: free.
    std::atomic<Handle> context{0};
    std::atomic<void*> object{nullptr};
    std::atomic<int> failure{0};
    std::uint32_t generation = 0;  // Guarded by mutex_.
    std::uint32_t retained = 0;    // Owners beside the first. Guarded by mutex_.
  };

  Slot* find(Handle handle) const noexcept;
  void* end(Slot* slot, Handle handle) noexcept;  // With mutex_ held; nullptr for nullptr.

  mutable std::mutex mutex_;
  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::vector<std::uint32_t> free_;  // Indexes; guarded by mutex_. Oldest first out, see retire().
  std::size_t free_head_ = 0;        // Guarded by mutex_.
  std::uint32_t used_ = 0;           // Indexes ever handed out; guarded by mutex_.
  std::atomic<std::size_t> live_count_{0};
};

// Each call looks up a few: these are inlined.

inline HandleTable::Slot* HandleTable::find(Handle handle) const noexcept {
  if (handle >> protocol::kHandleTagShift != protocol::kHandleTag) return nullptr;
  const std::size_t index = handle & protocol::kHandleIndexMask;
  Slot* chunk = chunks_[index / kChunkSlots].load(std::memory_order_acquire);
  if (chunk == nullptr) return nullptr;
  Slot* slot = &chunk[index % kChunkSlots];
  return slot->handle.load(std::memory_order_acquire) == handle ? slot : nullptr;
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
