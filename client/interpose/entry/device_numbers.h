// DeviceNumbers: translates the program's device numbers, in arguments and inside structures, to
// the worker's. CUDA_VISIBLE_DEVICES makes the two differ.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "client/devices/device_snapshot.h"
#include "driver_abi/row.h"

namespace gpurun::client::interpose {

class DeviceNumbers {
 public:
  // If arguments[index] holds a device's number, replaces it by a translated copy that lives as
  // long as this object. Returns 0, or INVALID_DEVICE for a number that the program does not have.
  // The place of a pool's memory gets the error of driver_abi/semantics/pool_places.h.
  int adopt(const DeviceSnapshot& devices, const driver_abi::Row& row, std::size_t index,
            void** arguments);

 private:
  // The bytes that the argument points to, and the pointer itself.
  struct Copy {
    std::vector<std::byte> bytes;
    void* pointer = nullptr;
  };
  std::byte* keep(const void* source, std::size_t count);

  std::vector<std::unique_ptr<Copy>> copies_;
};

}  // namespace gpurun::client::interpose
