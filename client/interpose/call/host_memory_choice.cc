// HostMemoryChoice: read from the environment.
#include "client/interpose/call/host_memory_choice.h"

#include <cstdlib>
#include <string_view>

#include "base/log.h"

namespace gpurun::client::interpose {
namespace {

HostMemoryChoice read_choice() noexcept {
  const char* const value = std::getenv("GPURUN_HOST_MEMORY");
  const std::string_view text = value == nullptr ? "" : value;
  if (text == "copy") return HostMemoryChoice::kCopied;
  if (text == "mirror") return HostMemoryChoice::kMirrored;
  if (text == "compare") return HostMemoryChoice::kCompared;
  if (text == "check") return HostMemoryChoice::kChecked;
  if (!text.empty()) {
    GPURUN_LOG(
        kWarning,
        "GPURUN_HOST_MEMORY=%s is not 'copy', 'mirror', 'compare' or 'check', and is ignored",
        value);
  }
  return HostMemoryChoice::kReached;
}

}  // namespace

HostMemoryChoice host_memory_choice() noexcept {
  static const HostMemoryChoice choice = read_choice();
  return choice;
}

}  // namespace gpurun::client::interpose
