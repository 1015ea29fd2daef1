// SharedWindow: the shared memory of a block. Shared addresses are 32-bit offsets, so the 4 GiB
// above the base are reserved without access. A wild shared access faults in its kernel.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpurun::emulated {

// One thread at a time.
class SharedWindow {
 public:
  SharedWindow() = default;
  ~SharedWindow();
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;

  // Makes the first `bytes` usable. What was usable stays so. False when memory is short.
  bool commit(std::size_t bytes);
  std::uint8_t* base() const { return base_; }
  bool contains(std::uint64_t address) const;

 private:
  bool reserve();
  std::uint8_t* base_ = nullptr;
  std::size_t reserved_ = 0;
  std::size_t committed_ = 0;
};

}  // namespace gpurun::emulated
