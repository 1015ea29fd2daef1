// Managed answers: advice, prefetches, the attachment to a stream, and the attributes of a range.
#include "client/interpose/entry/managed_answers.h"

#include <cstring>

#include "client/interpose/capture/stream_argument.h"
#include "client/interpose/memory/managed_memory.h"
#include "protocol/log/record.h"

namespace gpurun::client::interpose {
namespace {

template <typename T>
T value_at(void* const* arguments, std::size_t index) {
  T value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

// CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS of all devices.
bool has_concurrent_access(const EntryContext& here) {
  return !here.session().mirrors_all_host_memory();
}

bool is_managed(std::uint64_t address) {
  const auto range = find_range(address);
  return range.has_value() && range->kind == MemoryKind::kManaged;
}

// Devices without concurrent access move managed memory as a whole, so the manual allows no advice
// that names them.
bool names_device(CUmem_advise advice, CUmemLocation location) {
  const bool placed = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                      advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                      advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  return placed && location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

int advise(const EntryContext& here, void* const* arguments, CUmemLocation location) {
  const int devices = here.devices().device_count();
  if (!has_concurrent_access(here) &&
      names_device(value_at<CUmem_advise>(arguments, 2), location)) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  return managed_advice().advise(value_at<CUdeviceptr>(arguments, 0),
                                 value_at<std::size_t>(arguments, 1),
                                 value_at<CUmem_advise>(arguments, 2), location, devices);
}

// The manual wants a stream of a device with concurrent access.
int prefetch(const EntryContext& here, void* const* arguments, CUmemLocation location,
             unsigned flags) {
  if (!has_concurrent_access(here)) return CUDA_ERROR_INVALID_DEVICE;
  const int devices = here.devices().device_count();
  return managed_advice().prefetch(value_at<CUdeviceptr>(arguments, 0),
                                   value_at<std::size_t>(arguments, 1), location, flags, devices);
}

// The batches: addresses, sizes, count, and for prefetches locations, starts and their count. Then
// flags and the stream, which is not the legacy stream (manual).
int batch(const EntryContext& here, void* const* arguments, bool prefetches) {
  if (!has_concurrent_access(here)) return CUDA_ERROR_INVALID_DEVICE;
  driver_abi::MemoryAdvice::Batch all;
  all.addresses = value_at<const CUdeviceptr*>(arguments, 0);
  all.sizes = value_at<const std::size_t*>(arguments, 1);
  all.count = value_at<std::size_t>(arguments, 2);
  std::size_t next = 3;
  if (prefetches) {
    all.locations = value_at<const CUmemLocation*>(arguments, 3);
    all.starts = value_at<const std::size_t*>(arguments, 4);
    all.location_count = value_at<std::size_t>(arguments, 5);
    next = 6;
  }
  all.flags = value_at<unsigned long long>(arguments, next);
  Handle stream = 0;
  const auto given = value_at<CUstream>(arguments, next + 1);
  if (const int result = resolve_stream(here, given, &stream); result != 0) return result;
  if (stream == 0 || stream == protocol::kStreamLegacy) return CUDA_ERROR_INVALID_VALUE;
  return prefetches ? managed_advice().prefetch(all, here.devices().device_count())
                    : managed_advice().discard(all);
}

// cuStreamAttachMemAsync: stream, address, length, flags. The length is 0 or that of the
// allocation (manual).
int attach(const EntryContext& here, void* const* arguments) {
  const auto range = find_range(value_at<CUdeviceptr>(arguments, 1));
  const auto length = value_at<std::size_t>(arguments, 2);
  const auto flags = value_at<unsigned>(arguments, 3);
  const bool known =
      flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE;
  if (!known || !range.has_value() || (length != 0 && length != range->bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  note_attachment(here, range->base, flags, handle_of(value_at<CUstream>(arguments, 0)));
  return 0;
}

}  // namespace

bool answer_managed(const EntryContext& here, const driver_abi::Row& row, void* const* arguments,
                    int* result) {
  if (!managed_memory_exists()) return false;
  switch (row.alias_opcode) {
    case opcode::cuMemAdvise:
      if (!is_managed(value_at<CUdeviceptr>(arguments, 0))) return false;
      *result = advise(here, arguments, driver_abi::location_of(value_at<CUdevice>(arguments, 3)));
      return true;
    case opcode::cuMemAdvise_v2:
      if (!is_managed(value_at<CUdeviceptr>(arguments, 0))) return false;
      *result = advise(here, arguments, value_at<CUmemLocation>(arguments, 3));
      return true;
    case opcode::cuMemPrefetchAsync:
      if (!is_managed(value_at<CUdeviceptr>(arguments, 0))) return false;
      *result =
          prefetch(here, arguments, driver_abi::location_of(value_at<CUdevice>(arguments, 2)), 0);
      return true;
    case opcode::cuMemPrefetchAsync_v2:
      if (!is_managed(value_at<CUdeviceptr>(arguments, 0))) return false;
      *result = prefetch(here, arguments, value_at<CUmemLocation>(arguments, 2),
                         value_at<unsigned>(arguments, 3));
      return true;
    case opcode::cuMemPrefetchBatchAsync:
    case opcode::cuMemDiscardAndPrefetchBatchAsync:
      *result = batch(here, arguments, true);
      return true;
    case opcode::cuMemDiscardBatchAsync:
      *result = batch(here, arguments, false);
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
      *result = attach(here, arguments);
      return true;
    default:
      return false;
  }
}

}  // namespace gpurun::client::interpose
