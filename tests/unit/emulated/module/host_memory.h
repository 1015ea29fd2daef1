// HostMemory: a GlobalMemory on the test's own heap. It detects memory that is not released.
#pragma once

#include <cstdlib>
#include <map>

#include "emulated/module/module.h"

namespace gpurun::emulated {

class HostMemory : public GlobalMemory {
 public:
  ~HostMemory() override {
    for (const auto& [address, bytes] : live_) std::free(reinterpret_cast<void*>(address));
  }
  Result<std::uint64_t> allocate(std::uint64_t bytes, std::uint64_t alignment,
                                 bool managed) override {
    if (bytes > limit_) return Status(Code::kResourceExhausted, "no such memory");
    alignment = alignment < 16 ? 16 : alignment;
    const std::uint64_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* block = std::aligned_alloc(alignment, rounded);
    if (block == nullptr) return Status(Code::kResourceExhausted, "out of memory");
    if (managed) ++managed_;
    live_[reinterpret_cast<std::uint64_t>(block)] = bytes;
    return reinterpret_cast<std::uint64_t>(block);
  }
  void release(std::uint64_t address) override {
    if (live_.erase(address) == 1) std::free(reinterpret_cast<void*>(address));
  }
  std::size_t live() const { return live_.size(); }
  int managed() const { return managed_; }
  void set_limit(std::uint64_t bytes) { limit_ = bytes; }

 private:
  std::map<std::uint64_t, std::uint64_t> live_;
  std::uint64_t limit_ = ~std::uint64_t{0};
  int managed_ = 0;
};

}  // namespace gpurun::emulated
