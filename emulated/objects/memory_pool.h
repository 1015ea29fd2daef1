// MemoryPool: the pool of cuMemAllocAsync. A call takes memory from the device's arena, and the
// memory returns to it when the stream reaches the free.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/unique_fd.h"
#include "emulated/objects/handle_table.h"

namespace gpurun::emulated {

class Device;
class DeviceArena;

// Any thread.
class MemoryPool final : public Object {
 public:
  static constexpr ObjectKind kKind = ObjectKind::kMemoryPool;

  // `arena`: the memory of `device`.
  MemoryPool(Device& device, DeviceArena& arena, bool is_default)
      : Object(kKind), device_(device), arena_(arena), is_default_(is_default) {}

  Device& device() const { return device_; }
  bool is_default() const { return is_default_; }

  // 0: the device's memory or the pool's own maximum is used up.
  std::uint64_t allocate(std::uint64_t bytes);
  void free(std::uint64_t address, std::uint64_t bytes);

  // Fixed at creation.
  std::uint64_t bytes_max = 0;  // 0: the device's memory.
  bool is_exportable = false;   // Other processes may have its memory.
  UniqueFd imported;            // The file of another process's pool, which allocates nothing.
  std::atomic<int> reuse_follow_event_dependencies{1};
  std::atomic<int> reuse_allow_opportunistic{1};
  std::atomic<int> reuse_allow_internal_dependencies{1};
  std::atomic<std::uint64_t> release_threshold{0};
  std::atomic<std::uint64_t> used{0};
  std::atomic<std::uint64_t> used_high{0};
  std::atomic<std::uint64_t> reserved_high{0};  // Nothing is retained, so `used` is reserved.

 private:
  Device& device_;
  DeviceArena& arena_;
  const bool is_default_;
};

}  // namespace gpurun::emulated
