// DeviceNumbers: a program's numbers of devices, where they stand in arguments and inside
// structures, as the worker counts them. CUDA_VISIBLE_DEVICES makes the two differ.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "client/device_snapshot.h"
#include "driver_abi/row.h"

namespace gpurun::client::interpose {

class DeviceNumbers {
 public:
  // Replaces arguments[index], if there is a device's number in it, by a translated copy that lives
  // as long as this object. 0, or INVALID_DEVICE for a number that the program cannot know.
  int adopt(const DeviceSnapshot& devices, const driver_abi::Row& row, std::size_t index,
            void** arguments);

 private:
  // What the argument points to, and the pointer itself.
  struct Copy {
    std::vector<std::byte> bytes;
    void* pointer = nullptr;
  };
  std::byte* keep(const void* source, std::size_t count);

  std::vector<std::unique_ptr<Copy>> copies_;
};

}  // namespace gpurun::client::interpose
