// Reader of CUjit_option lists. Optimisation, targets and registers are hints for machine code that
// this device does not make.
#include "emulated/api/jit_options.h"

#include <algorithm>
#include <cstring>

namespace gpurun::emulated {
namespace {

// INVALID_VALUE for options without a list, for unknown options, and for far more options than
// there are kinds.
CUresult check_list(unsigned int count, const CUjit_option* options, void** values) {
  constexpr unsigned kCountMax = 4096;
  if (count > kCountMax || (count != 0 && (options == nullptr || values == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool known = std::all_of(options, options + count, [](CUjit_option option) {
    return static_cast<unsigned>(option) < CU_JIT_NUM_OPTIONS;
  });
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// An unsigned int (cuda.h). The higher bits have no meaning.
std::size_t room_of(void* value) { return reinterpret_cast<std::uintptr_t>(value) & 0xffffffffu; }

}  // namespace

CUresult JitOptions::read(unsigned int count, const CUjit_option* options, void** values) {
  if (const CUresult result = check_list(count, options, values)) return result;
  for (unsigned i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.bytes = &values[i];
        error_.room = room_of(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        info_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.bytes = &values[i];
        info_.room = room_of(values[i]);
        break;
      case CU_JIT_WALL_TIME:
        wall_time_ = &values[i];
        break;
      default:
        break;
    }
  }
  return CUDA_SUCCESS;
}

CUresult JitOptions::check_input(unsigned int count, const CUjit_option* options, void** values) {
  if (const CUresult result = check_list(count, options, values)) return result;
  const bool excluded = std::any_of(options, options + count, [](CUjit_option option) {
    return option == CU_JIT_WALL_TIME || option == CU_JIT_INFO_LOG_BUFFER ||
           option == CU_JIT_ERROR_LOG_BUFFER || option == CU_JIT_TARGET_FROM_CUCONTEXT ||
           option == CU_JIT_TARGET;
  });
  return excluded ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

void JitOptions::Log::add(const std::string& text) {
  if (bytes == nullptr) return;
  if (buffer != nullptr && room > 0) {
    const std::string more = filled == 0 || text.empty() ? text : "\n" + text;
    const std::size_t written = std::min<std::size_t>(more.size(), room - 1 - filled);
    std::memcpy(buffer + filled, more.data(), written);
    filled += written;
    buffer[filled] = '\0';
  }
  *bytes = reinterpret_cast<void*>(static_cast<std::uintptr_t>(filled));
}

void JitOptions::report_error(const std::string& text) {
  error_.add(text);
  info_.add("");
}

void JitOptions::report_success() {
  error_.add("");
  info_.add("");
}

void JitOptions::report_time(std::chrono::nanoseconds time) {
  milliseconds_ += std::chrono::duration<float, std::milli>(time).count();
  if (wall_time_ == nullptr) return;
  *wall_time_ = nullptr;
  std::memcpy(wall_time_, &milliseconds_, sizeof milliseconds_);
}

}  // namespace gpurun::emulated
