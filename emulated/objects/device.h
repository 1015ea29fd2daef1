// Device: one emulated GPU, with its memory, its primary context and its attributes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
#include "emulated/objects/context.h"
#include "emulated/objects/device_arena.h"

namespace gpurun::emulated {

class Engine;
class MemoryPool;

// Any thread. Devices are immortal.
class Device {
 public:
  // `ordinal`: the number that programs use. `physical`: the number before CUDA_VISIBLE_DEVICES.
  Device(int ordinal, int physical);

  int ordinal() const { return ordinal_; }
  int physical() const { return physical_; }
  std::string name() const;
  CUuuid uuid() const;
  // "0000:01:00.0". The bus number is the physical index + 1.
  std::string pci_bus_id() const;
  // False: no such attribute. `capability`: the view of the caller (see settings.h).
  bool attribute(CUdevice_attribute attribute, int capability, int* value) const;

  DeviceArena& arena() { return arena_; }

  // The engine that runs this device's kernels. It is made at the first call. nullptr: it cannot be
  // had.
  Engine* engine();
  // nullptr: nothing was launched yet.
  Engine* running_engine() const { return running_engine_.load(std::memory_order_acquire); }

  // The primary context. It is always the same object, and active while it is retained.
  const ContextPtr& primary();
  ContextPtr retain_primary();
  // False: it was not retained.
  bool release_primary();
  void reset_primary();
  bool primary_is_active();

  std::shared_ptr<MemoryPool> default_pool();
  // The pool of cuMemAllocAsync.
  std::shared_ptr<MemoryPool> current_pool();
  void set_current_pool(std::shared_ptr<MemoryPool> pool);

 private:
  const int ordinal_;
  const int physical_;
  DeviceArena arena_;
  std::mutex engine_mutex_;
  std::atomic<Engine*> running_engine_{nullptr};
  std::mutex mutex_;
  ContextPtr primary_;
  int retained_ = 0;
  std::shared_ptr<MemoryPool> default_pool_;
  std::shared_ptr<MemoryPool> current_pool_;
};

// The visible devices. They are made at the first call.
const std::vector<std::unique_ptr<Device>>& devices();
// nullptr: no such device.
Device* device_at(CUdevice ordinal);

// Limits of a multiprocessor at our capability (Programming Guide, "Technical Specifications per
// Compute Capability").
int shared_bytes_per_block_optin(int capability);
inline constexpr int kSharedBytesPerBlock = 48 << 10;
inline constexpr int kSharedBytesReserved = 1 << 10;
int threads_per_multiprocessor(int capability);
int blocks_per_multiprocessor(int capability);

}  // namespace gpurun::emulated
