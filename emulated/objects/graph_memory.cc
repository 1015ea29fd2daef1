// Graph memory is ordinary device memory under another kind.
#include "emulated/objects/graph_memory.h"

#include <array>
#include <mutex>
#include <unordered_set>

#include "emulated/objects/device.h"
#include "emulated/objects/memory_registry.h"
#include "emulated/objects/ownership.h"

namespace gpurun::emulated {
namespace {

std::atomic<std::uint64_t>& in_use(int device) {
  constexpr std::size_t kDevicesMax = 16;  // settings.h
  static auto* counters = new std::array<std::atomic<std::uint64_t>, kDevicesMax>{};
  return (*counters)[static_cast<std::size_t>(device) % kDevicesMax];
}

// Addresses that a launch has allocated and that were not freed since.
struct Unfreed {
  std::mutex mutex;
  std::unordered_set<std::uint64_t> addresses;
};
Unfreed& unfreed() {
  static auto* all = new Unfreed;
  return *all;
}

}  // namespace

void GraphMemory::note_allocated(std::uint64_t address) {
  const std::lock_guard lock(unfreed().mutex);
  unfreed().addresses.insert(address);
}

void GraphMemory::note_freed(std::uint64_t address) {
  const std::lock_guard lock(unfreed().mutex);
  unfreed().addresses.erase(address);
}

CUresult GraphMemoryOperation::run(Context&) {
  if (type_ == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    GraphMemory::note_allocated(address_);
  } else {
    GraphMemory::note_freed(address_);
  }
  return CUDA_SUCCESS;
}

std::shared_ptr<GraphMemory> GraphMemory::allocate(Device& device, std::uint64_t bytes) {
  const std::uint64_t address = device.arena().allocate(bytes);
  if (address == 0) return nullptr;
  MemoryRange range;
  range.base = address;
  range.bytes = bytes;
  range.kind = MemoryKind::kGraph;
  range.device = device.ordinal();
  memory_registry().add(range);
  in_use(device.ordinal()) += bytes;
  return std::shared_ptr<GraphMemory>(new GraphMemory(address, bytes, device.ordinal()));
}

GraphMemory::~GraphMemory() {
  in_use(device_) -= bytes_;
  {
    // Work of other streams may use the memory now, and a free that comes later must find it.
    const std::lock_guard lock(unfreed().mutex);
    if (unfreed().addresses.erase(address_) != 0) {
      (void)memory_registry().change_kind(address_, MemoryKind::kGraph, MemoryKind::kDevice);
      return;
    }
  }
  const auto range = memory_registry().take(address_, {MemoryKind::kGraph});
  if (range) release_memory(*range);
}

std::uint64_t GraphMemory::bytes_in_use(const Device& device) { return in_use(device.ordinal()); }

void UserObject::release(const std::shared_ptr<UserObject>& object, unsigned count) {
  const std::uint64_t before = object->count_.fetch_sub(count, std::memory_order_acq_rel);
  if (before != count) return;
  handles().drop(object->handle());
  object->destroy_(object->data_);
}

}  // namespace gpurun::emulated
