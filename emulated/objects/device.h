// Device: one emulated GPU, with its memory, its engine and its attributes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver_abi/cuda_abi.h"
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
  std::shared_ptr<MemoryPool> default_pool_;
  std::shared_ptr<MemoryPool> current_pool_;
};

// The visible devices. They are made at the first call.
const std::vector<std::unique_ptr<Device>>& devices();
// nullptr: no such device.
Device* device_at(CUdevice ordinal);

}  // namespace gpurun::emulated
