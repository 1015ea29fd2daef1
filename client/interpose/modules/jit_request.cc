// The compiler's options and logs (CUDA Driver API manual, "CUjit_option").
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "client/interpose/modules/load.h"

namespace gpurun::client::interpose::modules {
namespace {

// Its value points to data of the program (or counts such), of which the worker can know nothing.
bool holds_pointers(CUjit_option option) {
  switch (option) {
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_GLOBAL_SYMBOL_COUNT:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_KERNEL_COUNT:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_COUNT:
      return true;
    default:
      return false;
  }
}

std::uint32_t log_bytes(void* value) {
  return static_cast<std::uint32_t>(
      std::min(reinterpret_cast<std::uintptr_t>(value), protocol::kJitLogBytesMax));
}

// Text with its NUL, cut to `room`; `*length` (optional) becomes the bytes written.
void write_log(const std::string& log, void* buffer, std::size_t room, void** length) {
  std::size_t written = 0;
  if (buffer != nullptr && room != 0) {
    written = std::min(log.size(), room - 1);
    std::memcpy(buffer, log.data(), written);
    static_cast<char*>(buffer)[written] = '\0';
  }
  if (length != nullptr) *length = reinterpret_cast<void*>(written);
}

}  // namespace

int JitRequest::read(const CUjit_option* options, void* const* values, unsigned count) {
  if (count == 0) return 0;
  if (options == nullptr || values == nullptr || count > protocol::kJitOptionsMax) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  options_ = options;
  values_ = const_cast<void**>(values);
  count_ = count;
  for (unsigned i = 0; i < count; ++i) {
    const CUjit_option option = options[i];
    if (option < 0 || option >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
    if (holds_pointers(option)) {
      GPURUN_LOG(kWarning, "JIT option %d is not supported: its value points into the program",
                 static_cast<int>(option));
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    switch (option) {
      case CU_JIT_WALL_TIME:
      case CU_JIT_INFO_LOG_BUFFER:
      case CU_JIT_ERROR_LOG_BUFFER:
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_log_bytes = log_bytes(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_log_bytes = log_bytes(values[i]);
        break;
      default:
        numbers.push_back(
            {static_cast<std::int32_t>(option), reinterpret_cast<std::uintptr_t>(values[i])});
    }
  }
  return 0;
}

void JitRequest::write(const protocol::ImageOutcome& outcome) const {
  void* info = nullptr;
  void* error = nullptr;
  void** info_length = nullptr;
  void** error_length = nullptr;
  for (unsigned i = 0; i < count_; ++i) {
    switch (options_[i]) {
      case CU_JIT_WALL_TIME: {
        const float milliseconds = 0;  // The worker's compiler may have had nothing to do.
        values_[i] = nullptr;
        std::memcpy(&values_[i], &milliseconds, sizeof milliseconds);
        break;
      }
      case CU_JIT_INFO_LOG_BUFFER:
        info = values_[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER:
        error = values_[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_length = &values_[i];
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_length = &values_[i];
        break;
      default:
        break;
    }
  }
  write_log(outcome.info_log, info, info_log_bytes, info_length);
  write_log(outcome.error_log, error, error_log_bytes, error_length);
}

}  // namespace gpurun::client::interpose::modules
