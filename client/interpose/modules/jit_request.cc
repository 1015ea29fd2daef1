// JitRequest: the compiler's options and logs (CUDA Driver API manual, "CUjit_option").
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "client/interpose/modules/jit_request.h"
#include "driver_abi/semantics/jit_options.h"

namespace gpurun::client::interpose::modules {
namespace {

// The value is an unsigned int (cuda.h). Its upper half means nothing.
std::uint32_t log_bytes(void* value) {
  const auto bytes = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(value));
  return std::min(bytes, static_cast<std::uint32_t>(protocol::kJitLogBytesMax));
}

}  // namespace

int JitRequest::read(const CUjit_option* options, void* const* values, unsigned count) {
  if (count == 0) return 0;
  if (options == nullptr || values == nullptr || count > protocol::kJitOptionsMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  given_ = true;
  for (unsigned i = 0; i < count; ++i) {
    const CUjit_option option = options[i];
    if (option < 0 || option >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
    if (driver_abi::points_to_program_data(option)) {
      GPURUN_LOG(kWarning, "JIT option %d is not supported: its value points into the program",
                 static_cast<int>(option));
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    switch (option) {
      case CU_JIT_WALL_TIME:
        wall_time_ = const_cast<void**>(&values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        info_.buffer = values[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.buffer = values[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_log_bytes = log_bytes(values[i]);
        info_.length = const_cast<void**>(&values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_log_bytes = log_bytes(values[i]);
        error_.length = const_cast<void**>(&values[i]);
        break;
      default:
        numbers.push_back(
            {static_cast<std::int32_t>(option), reinterpret_cast<std::uintptr_t>(values[i])});
    }
  }
  return 0;
}

std::size_t JitRequest::Log::write(const std::string& text, std::size_t room) const {
  if (buffer == nullptr || room == 0) return 0;
  const std::size_t written = std::min(text.size(), room - 1);
  std::memcpy(buffer, text.data(), written);
  static_cast<char*>(buffer)[written] = '\0';
  return written;
}

void JitRequest::write(const protocol::ImageOutcome& outcome) const {
  // The worker reports no time, so the time is always 0.
  if (wall_time_ != nullptr) *wall_time_ = nullptr;
  write_logs(outcome);
}

void JitRequest::write_logs(const protocol::ImageOutcome& outcome) const {
  const std::size_t info = info_.write(outcome.info_log, info_log_bytes);
  const std::size_t error = error_.write(outcome.error_log, error_log_bytes);
  if (info_.length != nullptr) *info_.length = reinterpret_cast<void*>(info);
  if (error_.length != nullptr) *error_.length = reinterpret_cast<void*>(error);
}

protocol::LinkReply JitRequest::untouched() const {
  protocol::LinkReply reply;
  reply.info_log_value = info_log_bytes;
  reply.error_log_value = error_log_bytes;
  return reply;
}

void JitRequest::write(const protocol::LinkReply& now, const protocol::LinkReply& before) const {
  const auto settle = [](const Log& log, std::size_t room, const std::string& text, bool changed,
                         std::uint32_t value) {
    if (!changed) return;
    (void)log.write(text, room);
    if (log.length != nullptr) *log.length = reinterpret_cast<void*>(std::uintptr_t{value});
  };
  settle(info_, info_log_bytes, now.info_log,
         now.info_log != before.info_log || now.info_log_value != before.info_log_value,
         now.info_log_value);
  settle(error_, error_log_bytes, now.error_log,
         now.error_log != before.error_log || now.error_log_value != before.error_log_value,
         now.error_log_value);
  if (wall_time_ != nullptr && now.wall_time != before.wall_time) {
    *wall_time_ = reinterpret_cast<void*>(std::uintptr_t{now.wall_time});
  }
}

}  // namespace gpurun::client::interpose::modules
