// Arguments: reads the arguments of a call by its row, for the test drivers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "driver_abi/row.h"

namespace gpurun::devices {

// The pointer that argument `index` is (for shapes that are pointers).
inline void* pointer_of(void* const* arguments, std::size_t index) {
  void* value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

inline std::uint64_t integer_at(const void* place, std::uint32_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, place, bytes < sizeof value ? bytes : sizeof value);
  return value;
}

// True for the shapes that are pointers in the prototype.
inline bool is_pointer(const driver_abi::Parameter& parameter) {
  switch (parameter.shape) {
    case driver_abi::Shape::kScalar:
    case driver_abi::Shape::kStruct:
    case driver_abi::Shape::kHandle:
      return false;
    default:
      return true;
  }
}

// The number of objects that the pointer at `index` points to. 0 if the pointer to the count is
// NULL.
inline std::uint64_t count_of(const driver_abi::Row& row, void* const* arguments,
                              std::size_t index) {
  const driver_abi::Parameter& parameter = row.parameters[index];
  if (parameter.fixed_count != 0) return parameter.fixed_count;
  if (parameter.count_parameter == driver_abi::kNoParameter) return 1;
  const driver_abi::Parameter& counter = row.parameters[parameter.count_parameter];
  const void* place = arguments[parameter.count_parameter];
  if (is_pointer(counter)) place = pointer_of(arguments, parameter.count_parameter);
  if (place == nullptr) return 0;
  const std::uint64_t count = integer_at(place, counter.element_bytes);
  const auto fewer = static_cast<std::uint64_t>(-parameter.count_offset);
  return count < fewer ? 0 : count - fewer;
}

}  // namespace gpurun::devices
