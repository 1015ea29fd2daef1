// Managed answers: advice, prefetches, the attachment to a stream, and the attributes of a range.
#include "client/interpose/entry/managed_answers.h"

#include <cstring>

#include "client/interpose/memory/managed_memory.h"

namespace gpurun::client::interpose {
namespace {

template <typename T>
T value_at(void* const* arguments, std::size_t index) {
  T value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

bool is_managed(std::uint64_t address) {
  const auto range = find_range(address);
  return range.has_value() && range->kind == MemoryKind::kManaged;
}

int advise(void* const* arguments, CUmemLocation location, int devices) {
  return managed_advice().advise(value_at<CUdeviceptr>(arguments, 0),
                                 value_at<std::size_t>(arguments, 1),
                                 value_at<CUmem_advise>(arguments, 2), location, devices);
}

int prefetch(void* const* arguments, CUmemLocation location, unsigned flags, int devices) {
  return managed_advice().prefetch(value_at<CUdeviceptr>(arguments, 0),
                                   value_at<std::size_t>(arguments, 1), location, flags, devices);
}

// cuStreamAttachMemAsync: stream, address, length, flags. The length is 0 or that of the
// allocation (manual).
int attach(void* const* arguments) {
  const auto range = find_range(value_at<CUdeviceptr>(arguments, 1));
  const auto length = value_at<std::size_t>(arguments, 2);
  const auto flags = value_at<unsigned>(arguments, 3);
  const bool known =
      flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE;
  return known && range.has_value() && (length == 0 || length == range->bytes)
             ? 0
             : int{CUDA_ERROR_INVALID_VALUE};
}

}  // namespace

bool answer_managed(const EntryContext& here, const driver_abi::Row& row, void* const* arguments,
                    int* result) {
  if (!managed_memory_exists()) return false;
  const int devices = here.devices().device_count();
  switch (row.alias_opcode) {
    case opcode::cuMemAdvise:
      if (!is_managed(value_at<CUdeviceptr>(arguments, 0))) return false;
      *result =
          advise(arguments, driver_abi::location_of(value_at<CUdevice>(arguments, 3)), devices);
      return true;
    case opcode::cuMemAdvise_v2:
      if (!is_managed(value_at<CUdeviceptr>(arguments, 0))) return false;
      *result = advise(arguments, value_at<CUmemLocation>(arguments, 3), devices);
      return true;
    case opcode::cuMemPrefetchAsync:
      if (!is_managed(value_at<CUdeviceptr>(arguments, 0))) return false;
      *result = prefetch(arguments, driver_abi::location_of(value_at<CUdevice>(arguments, 2)), 0,
                         devices);
      return true;
    case opcode::cuMemPrefetchAsync_v2:
      if (!is_managed(value_at<CUdeviceptr>(arguments, 0))) return false;
      *result = prefetch(arguments, value_at<CUmemLocation>(arguments, 2),
                         value_at<unsigned>(arguments, 3), devices);
      return true;
    case opcode::cuMemRangeGetAttribute:
      if (!is_managed(value_at<CUdeviceptr>(arguments, 3))) return false;
      *result = managed_advice().attribute(
          value_at<void*>(arguments, 0), value_at<std::size_t>(arguments, 1),
          value_at<CUmem_range_attribute>(arguments, 2), value_at<CUdeviceptr>(arguments, 3),
          value_at<std::size_t>(arguments, 4));
      return true;
    case opcode::cuStreamAttachMemAsync:
      if (!is_managed(value_at<CUdeviceptr>(arguments, 1))) return false;
      *result = attach(arguments);
      return true;
    default:
      return false;
  }
}

}  // namespace gpurun::client::interpose
