// Reading of CUjit_option lists. Optimisation, targets and registers are hints for machine code
// that this device does not make.
#include "server/emulated/api/jit_options.h"

#include <algorithm>
#include <cstring>

namespace gpurun::emulated {

CUresult JitOptions::read(unsigned int count, const CUjit_option* options, void** values) {
  constexpr unsigned kCountMax = 4096;
  if (count > kCountMax || (count != 0 && (options == nullptr || values == nullptr))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i < count; ++i) {
    switch (options[i]) {
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.bytes = &values[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        info_.buffer = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.bytes = &values[i];
        break;
      default:
        if (options[i] >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
        break;
    }
  }
  return CUDA_SUCCESS;
}

void JitOptions::Log::write(const std::string& text) const {
  if (bytes == nullptr) return;
  const auto room = reinterpret_cast<std::uintptr_t>(*bytes) & 0xffffffffu;
  std::size_t written = 0;
  if (buffer != nullptr && room > 0) {
    written = std::min<std::size_t>(text.size(), room - 1);
    std::memcpy(buffer, text.data(), written);
    buffer[written] = '\0';
  }
  *bytes = reinterpret_cast<void*>(static_cast<std::uintptr_t>(written));
}

void JitOptions::report_error(const std::string& text) const {
  error_.write(text);
  info_.write("");
}

void JitOptions::report_success() const {
  error_.write("");
  info_.write("");
}

}  // namespace gpurun::emulated
