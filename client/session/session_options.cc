// SessionOptions: read from the environment.
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/log.h"
#include "client/session/session.h"

namespace gpurun::client {
namespace {

bool says_yes(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

bool says_off(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && std::strcmp(value, "off") == 0;
}

// Returns the number that a variable holds. Another text counts as unset, with one warning for each
// variable.
long number_of(const char* variable, long least, long most, long otherwise,
               std::atomic_flag* said) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return otherwise;
  long number = 0;
  const char* const end = value + std::strlen(value);
  const auto [rest, error] = std::from_chars(value, end, number);
  if (error == std::errc() && rest == end && number >= least && number <= most) return number;
  if (!said->test_and_set(std::memory_order_relaxed)) {
    GPURUN_LOG(kWarning, "%s is '%.32s': no number of %ld to %ld; it is not used", variable, value,
               least, most);
  }
  return otherwise;
}

std::chrono::microseconds spin_of_environment() {
  static std::atomic_flag said;
  return std::chrono::microseconds(
      number_of("GPURUN_SPIN_US", 0, SessionOptions::kSpinUsMax, BriefSpin::kSpan.count(), &said));
}

unsigned bulk_connections_of_environment() {
  static std::atomic_flag said;
  return static_cast<unsigned>(
      number_of("GPURUN_BULK_CONNECTIONS", 1, SessionOptions::kBulkConnectionsMax, 0, &said));
}

}  // namespace

SessionOptions SessionOptions::from_environment() {
  SessionOptions options;
  options.every_call_is_a_fence = says_yes("GPURUN_SYNC");
  options.statistics = says_yes("GPURUN_STATS");
  options.launches_wait = says_yes("CUDA_LAUNCH_BLOCKING");
  options.packing = !says_off("GPURUN_PACKING");
  options.spin = spin_of_environment();
  options.bulk_connections = bulk_connections_of_environment();
  return options;
}

}  // namespace gpurun::client
