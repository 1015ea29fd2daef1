// Visible fills: the asynchronous form, and a wait for its stream.
#include "client/interpose/entry/visible_fills.h"

#include <array>
#include <cstring>

#include "client/interpose/call/stream.h"
#include "client/interpose/entry/generated_call.h"
#include "client/interpose/memory/host_arena.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {
namespace {

std::uint16_t asynchronous_form(std::uint16_t row) {
  switch (row) {
    case opcode::cuMemsetD2D8_v2:
      return opcode::cuMemsetD2D8Async;
    case opcode::cuMemsetD2D16_v2:
      return opcode::cuMemsetD2D16Async;
    case opcode::cuMemsetD2D32_v2:
      return opcode::cuMemsetD2D32Async;
    default:
      return 0;
  }
}

}  // namespace

bool fill_visible_plane(const EntryContext& here, const driver_abi::Row& row,
                        void* const* arguments, int* result) {
  if (!host_memory_exists()) return false;
  const std::uint16_t form = asynchronous_form(row.alias_opcode);
  if (form == 0) return false;
  CUdeviceptr to = 0;
  std::memcpy(&to, arguments[0], sizeof to);
  const auto range = find_device_range(here, to);
  if (!range.has_value() || !range->reached) return false;
  const bool plain = row.variant == driver_abi::StreamVariant::kPlain;
  CUstream stream = plain ? nullptr : as<CUstream>(protocol::kStreamPerThread);
  const std::array<void*, 6> with = {arguments[0], arguments[1], arguments[2],
                                     arguments[3], arguments[4], &stream};
  *result = run_generated(*driver_abi::find_row(form), with.data());
  if (*result == 0) *result = synchronize_stream(here, handle_of(stream));
  return true;
}

}  // namespace gpurun::client::interpose
