// generic(): answers every call that has no function of its own, from its row alone.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "tests/drivers/argument.h"
#include "tests/drivers/null/entry.h"

namespace gpurun::null_device {
namespace {

using driver_abi::Direction;
using driver_abi::Parameter;
using driver_abi::Row;
using driver_abi::Shape;

constexpr std::uint64_t kHandleMark = std::uint64_t{0xca} << 40;
constexpr unsigned kKindShift = 32;
constexpr std::size_t kKinds = 64;
// The length of every list that the program asks for.
constexpr std::uint64_t kListLength = 2;

std::atomic<std::uint32_t> g_next_ordinal[kKinds];

void fill(const Row& row, std::size_t index, void* place, std::uint64_t bytes) {
  if (!g_fill_with_pattern) {
    std::memset(place, 0, bytes);
    return;
  }
  auto* out = static_cast<unsigned char*>(place);
  for (std::uint64_t i = 0; i < bytes; ++i) {
    out[i] = static_cast<unsigned char>(1 + (row.opcode * 7 + index * 13 + i) % 120);
  }
}

void mint_into(const Parameter& parameter, void* place, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t handle = mint(parameter.handle);
    std::memcpy(static_cast<unsigned char*>(place) + i * sizeof handle, &handle, sizeof handle);
  }
}

// A count behind a pointer goes in and out: in is the room of the list, out is its length.
std::uint64_t settle_count(const Row& row, void* const* arguments, std::size_t index,
                           bool has_room) {
  const std::uint8_t counter = row.parameters[index].count_parameter;
  std::uint64_t count = devices::count_of(row, arguments, index);
  if (counter == driver_abi::kNoParameter || !devices::is_pointer(row.parameters[counter])) {
    return count;
  }
  count = has_room ? std::min(count, kListLength) : kListLength;
  void* place = devices::pointer_of(arguments, counter);
  if (place != nullptr) std::memcpy(place, &count, row.parameters[counter].element_bytes);
  return count;
}

bool counts_another(const Row& row, std::size_t index) {
  return std::any_of(row.parameters.begin(), row.parameters.end(),
                     [index](const Parameter& p) { return p.count_parameter == index; });
}

void write_output(const Row& row, void* const* arguments, std::size_t index) {
  const Parameter& parameter = row.parameters[index];
  void* place = devices::pointer_of(arguments, index);
  const std::uint64_t count = settle_count(row, arguments, index, place != nullptr);
  if (place == nullptr) return;
  switch (parameter.shape) {
    case Shape::kHandlePointee:
    case Shape::kHandleArray:
      return mint_into(parameter, place, count);
    case Shape::kPointee:
      if (!counts_another(row, index)) fill(row, index, place, parameter.element_bytes);
      return;
    case Shape::kArray:
      return fill(row, index, place, count * parameter.element_bytes);
    case Shape::kStringBuffer:
      if (count > 0) std::memcpy(place, "", 1);
      return;
    default:
      return;
  }
}

}  // namespace

bool g_fill_with_pattern = false;

std::uint64_t mint(driver_abi::HandleKind kind) noexcept {
  const auto number = static_cast<std::uint64_t>(kind);
  const std::uint64_t ordinal = ++g_next_ordinal[number % kKinds];
  return kHandleMark | number << kKindShift | ordinal << 4;
}

driver_abi::HandleKind kind_of(std::uint64_t handle) noexcept {
  return handle >> 40 == kHandleMark >> 40
             ? static_cast<driver_abi::HandleKind>(handle >> kKindShift & 0xff)
             : driver_abi::HandleKind::kNone;
}

CUresult generic(const Row& row, void* const* arguments) noexcept {
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    const Parameter& parameter = row.parameters[i];
    if (!devices::is_pointer(parameter) || parameter.nullable ||
        parameter.shape == Shape::kOpaque || devices::pointer_of(arguments, i) != nullptr) {
      continue;
    }
    const bool counted = parameter.count_parameter != driver_abi::kNoParameter;
    if (counted && devices::count_of(row, arguments, i) == 0) continue;
    return static_cast<CUresult>(row.null_error);
  }
  for (std::size_t i = 0; i < row.parameters.size(); ++i) {
    if (row.parameters[i].direction != Direction::kIn) write_output(row, arguments, i);
  }
  return CUDA_SUCCESS;
}

}  // namespace gpurun::null_device
