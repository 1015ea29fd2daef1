// HandleTable: the table behind CUDA handles. A handle is a number that names an entry, never an
// address. A wrong, stale or forged handle is recognised and never dereferenced.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace gpurun::emulated {

enum class ObjectKind : std::uint8_t {
  kContext = 1,
  kModule,
  kLibrary,
  kKernel,
  kFunction,
  kStream,
  kEvent,
  kMemoryPool,
  kAllocation,
  kLinkState,
  kGraph,
  kGraphNode,
  kGraphExec,
  kUserObject,
  kArray,
  kMipmappedArray,
  kTextureObject,
  kSurfaceObject,
  kConditional,
};

// Base of everything that has a handle. `handle()` is 0 until the object is in the table.
class Object {
 public:
  explicit Object(ObjectKind kind) : kind_(kind) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  ObjectKind kind() const { return kind_; }
  std::uint64_t handle() const { return handle_; }
  // The handle as CUDA's opaque pointer type.
  template <typename Handle>
  Handle as() const {
    return reinterpret_cast<Handle>(static_cast<std::uintptr_t>(handle_));
  }

 private:
  friend class HandleTable;
  ObjectKind kind_;
  std::uint64_t handle_ = 0;
};

// Any thread. Numbers are never used twice, so a stale handle stays invalid for ever.
class HandleTable {
 public:
  // Gives `object` a handle and keeps it alive until remove().
  template <typename T>
  std::shared_ptr<T> add(std::shared_ptr<T> object) {
    const std::uint64_t serial = next_serial_.fetch_add(1, std::memory_order_relaxed);
    // Looks like a canonical address (programs print handles), 16-byte aligned, above 2.
    object->handle_ =
        (std::uint64_t{0x0600} | static_cast<std::uint8_t>(T::kKind)) << 36 | serial << 4;
    Shard& shard = shard_of(object->handle_);
    const std::unique_lock lock(shard.mutex);
    shard.objects.emplace(object->handle_, object);
    return object;
  }

  // nullptr when `handle` names no live T.
  template <typename T, typename Handle>
  std::shared_ptr<T> find(Handle handle) const {
    const auto value = number(handle);
    const Shard& shard = shard_of(value);
    const std::shared_lock lock(shard.mutex);
    const auto found = shard.objects.find(value);
    if (found == shard.objects.end() || found->second->kind() != T::kKind) return nullptr;
    return std::static_pointer_cast<T>(found->second);
  }

  // Invalidates the handle. The object lives on while others hold it. nullptr: no such handle.
  template <typename T, typename Handle>
  std::shared_ptr<T> remove(Handle handle) {
    return std::static_pointer_cast<T>(take(number(handle), T::kKind));
  }
  // As remove(), for an object of any kind.
  void drop(std::uint64_t handle) {
    std::shared_ptr<Object> last;  // Destroyed after the lock is gone.
    Shard& shard = shard_of(handle);
    const std::unique_lock lock(shard.mutex);
    const auto found = shard.objects.find(handle);
    if (found == shard.objects.end()) return;
    last = std::move(found->second);
    shard.objects.erase(found);
  }

 private:
  static std::uint64_t number(std::uint64_t handle) { return handle; }
  static std::uint64_t number(const void* handle) {
    return reinterpret_cast<std::uint64_t>(handle);
  }

  static constexpr std::size_t kShards = 16;
  struct Shard {
    mutable std::shared_mutex mutex;
    std::unordered_map<std::uint64_t, std::shared_ptr<Object>> objects;
  };

  std::shared_ptr<Object> take(std::uint64_t handle, ObjectKind kind) {
    Shard& shard = shard_of(handle);
    const std::unique_lock lock(shard.mutex);
    const auto found = shard.objects.find(handle);
    if (found == shard.objects.end() || found->second->kind() != kind) return nullptr;
    auto object = std::move(found->second);
    shard.objects.erase(found);
    return object;
  }
  Shard& shard_of(std::uint64_t handle) { return shards_[handle >> 4 & (kShards - 1)]; }
  const Shard& shard_of(std::uint64_t handle) const { return shards_[handle >> 4 & (kShards - 1)]; }

  std::array<Shard, kShards> shards_;
  std::atomic<std::uint64_t> next_serial_{1};
};

// The only table of the process. Never destroyed.
HandleTable& handles();

}  // namespace gpurun::emulated
