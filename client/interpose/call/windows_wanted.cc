// Windows wanted: the setting, and the limit of the address space.
#include "client/interpose/call/windows_wanted.h"

#include <sys/resource.h>

#include <cstdlib>
#include <string_view>

namespace gpurun::client::interpose {

bool windows_wanted() noexcept {
  const char* const value = getenv("GPURUN_DEVICE_WINDOWS");
  if (value != nullptr && std::string_view(value) == "off") return false;
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY;
}

}  // namespace gpurun::client::interpose
