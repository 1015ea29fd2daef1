// Arguments: draws the values.
#include "tests/parity/arguments.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/semantics/launch_attributes.h"

namespace gpurun::parity {
namespace {

using driver_abi::Direction;
using driver_abi::HandleKind;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

constexpr std::size_t kStorageBytes = 256;  // A by-value structure, or a word.

// At least 3, because tensor maps have arrays that are two shorter.
std::uint64_t small_count(std::size_t index) { return 3 + index % 3; }

void write_word(unsigned char* place, std::uint64_t value) {
  std::memcpy(place, &value, sizeof value);
}

std::uint64_t scalar_value(const Row& row, std::size_t index) {
  const Parameter& parameter = row.parameters[index];
  if (is_a_count(row, index)) return small_count(index);
  const std::string_view type = parameter.type;
  if (type == "CUdevice") return 0;
  if (type == "CUmemAllocationType") return CU_MEM_ALLOCATION_TYPE_PINNED;
  // The worker passes listed attributes alone.
  if (type == "CUstreamAttrID" || type == "CUkernelNodeAttrID") {
    return CU_LAUNCH_ATTRIBUTE_PRIORITY;
  }
  if (parameter.scalar_class == driver_abi::ScalarClass::kFloat) {
    const float value = 1.5f + static_cast<float>(index);
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  }
  const std::uint64_t pattern = 0x0102030405060708u * (index + 1);
  return parameter.element_bytes >= 8
             ? pattern
             : pattern & ((std::uint64_t{1} << 8 * parameter.element_bytes) - 1);
}

// The client passes pools of device memory alone (driver_abi/semantics/pool_places.h).
void write_pool_place(const Row& row, std::size_t index, unsigned char* buffer) {
  const std::string_view name = row.base;
  const std::string_view type = row.parameters[index].type;
  const CUmemLocation place{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  if (name == "cuMemPoolCreate" && type.find("CUmemPoolProps") != type.npos) {
    constexpr CUmemAllocationType kPinned = CU_MEM_ALLOCATION_TYPE_PINNED;
    std::memcpy(buffer + offsetof(CUmemPoolProps, allocType), &kPinned, sizeof kPinned);
    std::memcpy(buffer + offsetof(CUmemPoolProps, location), &place, sizeof place);
  } else if (name.find("MemPool") != name.npos && type.find("CUmemLocation") != type.npos) {
    std::memcpy(buffer, &place, sizeof place);
  }
}

}  // namespace

bool is_a_count(const Row& row, std::size_t index) {
  return std::any_of(row.parameters.begin(), row.parameters.end(),
                     [index](const Parameter& p) { return p.count_parameter == index; });
}

Arguments::Arguments(const Row& row, const HandleSource& handle) {
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    storage_.push_back(std::make_unique<unsigned char[]>(kStorageBytes));
    buffers_.push_back(std::make_unique<unsigned char[]>(kBufferBytes));
    pointers_.push_back(storage_[i].get());
    make(row, i, handle);
    drawn_.emplace_back(buffer(i), buffer(i) + kBufferBytes);
  }
}

bool Arguments::is_changed(std::size_t index) const {
  return std::memcmp(buffer(index), drawn_[index].data(), kBufferBytes) != 0;
}

void Arguments::make(const Row& row, std::size_t index, const HandleSource& handle) {
  const Parameter& parameter = row.parameters[index];
  unsigned char* storage = storage_[index].get();
  unsigned char* buffer = buffers_[index].get();
  for (std::size_t i = 0; i < kBufferBytes; ++i) {
    buffer[i] = static_cast<unsigned char>(1 + (index * 31 + i) % 200);
  }
  switch (parameter.shape) {
    case Shape::kScalar:
      return write_word(storage, scalar_value(row, index));
    case Shape::kStruct:
      std::memcpy(storage, buffer, kStorageBytes);
      return;
    case Shape::kHandle:
      return write_word(storage, handle(parameter.handle, index));
    case Shape::kString:
      std::snprintf(reinterpret_cast<char*>(buffer), kBufferBytes, "text %zu", index);
      break;
    case Shape::kHandlePointee:
    case Shape::kHandleArray:
      for (std::size_t i = 0; i < kHandlesInArray; ++i) {
        write_word(buffer + i * 8, handle(parameter.handle, index + i));
      }
      break;
    default:
      if (is_a_count(row, index)) write_word(buffer, small_count(index));
      write_pool_place(row, index, buffer);
      break;
  }
  if (parameter.direction == Direction::kOut) std::memset(buffer, kUntouched, kBufferBytes);
  write_word(storage, reinterpret_cast<std::uint64_t>(buffer));
}

void Arguments::replace(std::size_t index, std::uint64_t value) {
  write_word(storage_[index].get(), value);
}

}  // namespace gpurun::parity
