// JitArguments: the options that a peer may set, and the memory that the driver writes to.
#include "server/handlers/modules/jit_arguments.h"

#include <algorithm>

#include "driver_abi/semantics/jit_options.h"
#include "protocol/calls/link_calls.h"

namespace gpurun::server {
namespace {

// Whether the driver takes the value only as a number, never as a pointer. The peer chose it
// (manual, "CUjit_option").
bool is_number(int id) {
  switch (id) {
    case CU_JIT_WALL_TIME:
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
      return false;
    default:
      return id >= 0 && id < CU_JIT_NUM_OPTIONS && !driver_abi::points_to_program_data(id);
  }
}

}  // namespace

JitArguments::JitArguments(const std::vector<protocol::JitOption>& options,
                           std::uint32_t info_log_bytes, std::uint32_t error_log_bytes,
                           bool wall_time)
    : info_(info_log_bytes), error_(error_log_bytes) {
  for (const protocol::JitOption& option : options) {
    if (is_number(option.id)) add(option.id, reinterpret_cast<void*>(option.value));
  }
  if (wall_time) {
    add(CU_JIT_WALL_TIME, reinterpret_cast<void*>(std::uintptr_t{protocol::kWallTimeUnknown}));
  }
  add_log(info_, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES);
  add_log(error_, CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
}

void JitArguments::add(int id, void* value) {
  options_.push_back(static_cast<CUjit_option>(id));
  values_.push_back(value);
}

void JitArguments::add_log(std::vector<char>& log, CUjit_option buffer, CUjit_option bytes) {
  if (log.empty()) return;
  add(buffer, log.data());
  add(bytes, reinterpret_cast<void*>(log.size()));
}

std::uint32_t JitArguments::value_of(CUjit_option option) const {
  const auto found = std::find(options_.begin(), options_.end(), option);
  if (found == options_.end()) return 0;
  const auto at = static_cast<std::size_t>(found - options_.begin());
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(values_[at]));
}

std::string JitArguments::text(const std::vector<char>& log) {
  return std::string(log.begin(), std::find(log.begin(), log.end(), '\0'));
}

}  // namespace gpurun::server
