// The visible devices, their identity, and their pools.
#include "emulated/objects/device.h"

#include <cstdio>
#include <cstring>

#include "emulated/device_identity.h"
#include "emulated/objects/execution.h"
#include "emulated/objects/memory_pool.h"
#include "emulated/settings.h"

namespace gpurun::emulated {

Device::Device(int ordinal, int physical)
    : ordinal_(ordinal),
      physical_(physical),
      arena_(settings().memory_bytes, ledger_file(ordinal)) {}

std::string Device::name() const { return kDeviceName; }

CUuuid Device::uuid() const {
  CUuuid id;
  const auto uuid = device_uuid(physical_);
  static_assert(sizeof id.bytes == uuid.size());
  std::memcpy(id.bytes, uuid.data(), uuid.size());
  return id;
}

std::string Device::pci_bus_id() const {
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02x:00.0", device_pci_bus(physical_));
  return text;
}

Engine* Device::engine() {
  if (Engine* const running = running_engine()) return running;
  const std::lock_guard lock(engine_mutex_);
  if (running_engine() == nullptr) {
    running_engine_.store(make_engine().release(), std::memory_order_release);
  }
  return running_engine();
}

std::shared_ptr<MemoryPool> Device::default_pool() {
  const std::lock_guard lock(mutex_);
  if (default_pool_ == nullptr) {
    default_pool_ = handles().add(std::make_shared<MemoryPool>(*this, arena_, true));
  }
  return default_pool_;
}

std::shared_ptr<MemoryPool> Device::current_pool() {
  auto fallback = default_pool();
  const std::lock_guard lock(mutex_);
  return current_pool_ != nullptr ? current_pool_ : fallback;
}

void Device::set_current_pool(std::shared_ptr<MemoryPool> pool) {
  const std::lock_guard lock(mutex_);
  current_pool_ = std::move(pool);
}

const std::vector<std::unique_ptr<Device>>& devices() {
  static const auto* all = [] {
    auto* made = new std::vector<std::unique_ptr<Device>>;
    for (const int physical : visible_physical_devices()) {
      made->push_back(std::make_unique<Device>(static_cast<int>(made->size()), physical));
    }
    return made;
  }();
  return *all;
}

Device* device_at(CUdevice ordinal) {
  const auto& all = devices();
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= all.size()) return nullptr;
  return all[static_cast<std::size_t>(ordinal)].get();
}

}  // namespace gpurun::emulated
