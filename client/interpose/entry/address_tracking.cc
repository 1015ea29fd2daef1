// Address tracking: the generated calls that change what the client knows of addresses and events.
#include "client/interpose/entry/address_tracking.h"

#include <cstring>

#include "client/interpose/memory/memory_ranges.h"
#include "client/interpose/memory/used_memory.h"

namespace gpurun::client::interpose {
namespace {

template <typename T>
T argument(void* const* arguments, std::size_t index) {
  T value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

void keep(const EntryContext& here, CUdeviceptr base, std::size_t bytes, MemoryKind kind) {
  MemoryRange range;
  range.base = base;
  range.bytes = bytes;
  range.kind = kind;
  if (here.context != nullptr) {
    range.ordinal = here.context->ordinal;
    range.context = here.context->handle;
  }
  (void)add_range(range);
}

// The worker's number of a device becomes the program's (CUDA_VISIBLE_DEVICES).
void number_device(const EntryContext& here, CUmemAllocationProp* properties) {
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return;
  properties->location.id = here.devices().ordinal_of_server(properties->location.id);
}

// Memory of another process's pool. Only the worker knows its size.
void keep_imported(const EntryContext& here, CUdeviceptr address, Handle pool) {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  if (here.context == nullptr || call_row(here, opcode::cuMemGetAddressRange_v2,
                                          here.passing_site(), {}, &base, &bytes, address) != 0) {
    return;
  }
  MemoryRange range;
  range.base = base;
  range.bytes = bytes;
  range.kind = MemoryKind::kPool;
  range.ordinal = here.context->ordinal;
  range.context = here.context->handle;
  range.owner = pool;
  (void)add_range(range);
}

}  // namespace

int refuse_in_window(const driver_abi::Row& row, void* const* arguments) noexcept {
  const auto refused = [arguments](std::size_t index, int result) {
    return device_of_window(argument<std::uint64_t>(arguments, index)) < 0 ? 0 : result;
  };
  switch (row.alias_opcode) {
    case opcode::cuMemMap:
    case opcode::cuMemUnmap:
    case opcode::cuMemSetAccess:
    case opcode::cuMemAddressFree:
      return refused(0, CUDA_ERROR_INVALID_VALUE);
    case opcode::cuMemRetainAllocationHandle:
      return refused(1, CUDA_ERROR_INVALID_VALUE);
    case opcode::cuMemGetAccess:
      return refused(2, CUDA_ERROR_INVALID_VALUE);
    default:
      return 0;
  }
}

void track_addresses(const EntryContext& here, const driver_abi::Row& row,
                     void* const* arguments) noexcept {
  switch (row.alias_opcode) {
    case opcode::cuMemAddressReserve:
      return keep(here, *argument<CUdeviceptr*>(arguments, 0), argument<std::size_t>(arguments, 1),
                  MemoryKind::kReserved);
    case opcode::cuMemAddressFree:
      (void)remove_range(argument<CUdeviceptr>(arguments, 0), MemoryKind::kReserved);
      return;
    case opcode::cuMemRelease: {
      const Handle handle = argument<Handle>(arguments, 0);
      const bool ended = here.check(handle, HandleKind::kAllocation) != 0;
      if (ended) forget_memory(handle);
      return;
    }
    case opcode::cuMemGetAllocationPropertiesFromHandle:
      return number_device(here, argument<CUmemAllocationProp*>(arguments, 0));
    case opcode::cuMemPoolImportPointer:
      return keep_imported(here, *argument<CUdeviceptr*>(arguments, 0),
                           argument<Handle>(arguments, 1));
    case opcode::cuIpcGetEventHandle:
      here.session().share_event(handle_of(argument<CUevent>(arguments, 1)));
      return;
    case opcode::cuIpcOpenEventHandle:
      if (const CUevent* const out = argument<CUevent*>(arguments, 0); out != nullptr) {
        here.session().share_event(handle_of(*out));
      }
      return;
    default:
      return;
  }
}

}  // namespace gpurun::client::interpose
