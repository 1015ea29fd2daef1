// What the environment asks of a session.
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "client/session.h"

namespace gpurun::client {
namespace {

bool says_yes(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

std::chrono::microseconds spin_of_environment() {
  const char* value = std::getenv("GPURUN_SPIN_US");
  if (value == nullptr || *value == '\0') return BriefSpin::kSpan;
  long span = 0;
  const char* const end = value + std::strlen(value);
  const auto [rest, error] = std::from_chars(value, end, span);
  if (error == std::errc() && rest == end && span >= 0 && span <= SessionOptions::kSpinUsMax) {
    return std::chrono::microseconds(span);
  }
  static std::atomic_flag said;
  if (!said.test_and_set(std::memory_order_relaxed)) {
    GPURUN_LOG(kWarning, "GPURUN_SPIN_US is '%.32s': no number of 0 to %ld; it is not used", value,
               SessionOptions::kSpinUsMax);
  }
  return BriefSpin::kSpan;
}

}  // namespace

SessionOptions SessionOptions::from_environment() {
  SessionOptions options;
  options.every_call_is_a_fence = says_yes("GPURUN_SYNC");
  options.statistics = says_yes("GPURUN_STATS");
  options.launches_wait = says_yes("CUDA_LAUNCH_BLOCKING");
  options.spin = spin_of_environment();
  return options;
}

}  // namespace gpurun::client
