// DeviceNumbers: the places of device numbers in the arguments and structures of each call.
#include "client/interpose/entry/device_numbers.h"

#include <cstring>
#include <string_view>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/semantics/pool_places.h"
#include "protocol/limits.h"

namespace gpurun::client::interpose {
namespace {

using driver_abi::Direction;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

constexpr std::size_t kNone = ~std::size_t{0};

// The offset of the CUmemLocation in a structure of this type.
std::size_t location_offset(std::string_view type) {
  if (type.substr(0, 6) == "const ") type.remove_prefix(6);
  while (!type.empty() && (type.back() == '*' || type.back() == ' ')) type.remove_suffix(1);
  if (type == "CUmemLocation") return 0;
  if (type == "CUmemPoolProps") return offsetof(CUmemPoolProps, location);
  if (type == "CUmemAllocationProp") return offsetof(CUmemAllocationProp, location);
  if (type == "CUmemAccessDesc") return offsetof(CUmemAccessDesc, location);
  return kNone;
}

int translate(const DeviceSnapshot& devices, std::byte* at) {
  CUmemLocation location;
  std::memcpy(&location, at, sizeof location);
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return 0;
  const Device* device = devices.device(location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  location.id = device->server_ordinal;
  std::memcpy(at, &location, sizeof location);
  return 0;
}

// Refuses pools of memory that would have to be the client's. A driver that has such pools would
// return addresses that the program cannot reach.
int check_pool(const Row& row, const Parameter& parameter, const std::byte* source,
               void* const* arguments) {
  if (std::string_view(row.base) == "cuMemPoolCreate") {
    CUmemPoolProps properties;
    std::memcpy(&properties, source, sizeof properties);
    return driver_abi::check_pool_place(properties.location.type, properties.allocType);
  }
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    // Only the functions of current and default pools take a place beside a kind of memory.
    if (std::string_view(row.parameters[i].type) != "CUmemAllocationType") continue;
    CUmemLocation location;
    CUmemAllocationType type;
    if (parameter.element_bytes != sizeof location) continue;
    std::memcpy(&location, source, sizeof location);
    std::memcpy(&type, arguments[i], sizeof type);
    return driver_abi::check_pool_place(location.type, type);
  }
  return 0;
}

std::size_t count_of(const Row& row, const Parameter& parameter, void* const* arguments) {
  if (parameter.shape != Shape::kArray) return 1;
  if (parameter.count_parameter == driver_abi::kNoParameter) return parameter.fixed_count;
  const Parameter& counter = row.parameters[parameter.count_parameter];
  std::uint64_t count = 0;
  std::memcpy(&count, arguments[parameter.count_parameter],
              counter.element_bytes < sizeof count ? counter.element_bytes : sizeof count);
  return count;
}

}  // namespace

std::byte* DeviceNumbers::keep(const void* source, std::size_t count) {
  auto copy = std::make_unique<Copy>();
  copy->bytes.resize(count);
  std::memcpy(copy->bytes.data(), source, count);
  copy->pointer = copy->bytes.data();
  copies_.push_back(std::move(copy));
  return copies_.back()->bytes.data();
}

int DeviceNumbers::adopt(const DeviceSnapshot& devices, const Row& row, std::size_t index,
                         void** arguments) {
  const Parameter& parameter = row.parameters[index];
  if (parameter.direction != Direction::kIn) return 0;
  if (parameter.shape == Shape::kScalar) {
    if (std::string_view(parameter.type) != "CUdevice") return 0;
    int ordinal = 0;
    std::memcpy(&ordinal, arguments[index], sizeof ordinal);
    const Device* device = devices.device(ordinal);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (device->server_ordinal == ordinal) return 0;
    arguments[index] = keep(&device->server_ordinal, sizeof device->server_ordinal);
    return 0;
  }
  const bool pointed_to = parameter.shape == Shape::kPointee || parameter.shape == Shape::kArray;
  if (!pointed_to && parameter.shape != Shape::kStruct) return 0;
  const std::size_t offset = location_offset(parameter.type);
  if (offset == kNone) return 0;
  const void* source = arguments[index];
  if (pointed_to) std::memcpy(&source, arguments[index], sizeof source);
  const std::size_t count = count_of(row, parameter, arguments);
  // Packing refuses NULL and counts that are too large.
  if (source == nullptr || count == 0 || count > limits::kArrayCountMax) return 0;
  std::byte* copy = keep(source, count * parameter.element_bytes);
  if (const int refused = check_pool(row, parameter, copy, arguments); refused != 0) return refused;
  for (std::size_t i = 0; i < count; ++i) {
    const int result = translate(devices, copy + i * parameter.element_bytes + offset);
    if (result != 0) return result;
  }
  arguments[index] = pointed_to ? static_cast<void*>(&copies_.back()->pointer) : copy;
  return 0;
}

}  // namespace gpurun::client::interpose
