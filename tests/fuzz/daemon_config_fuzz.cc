// Daemon configuration: a mistake in gpurund's TOML file is an error with a line number, never a
// crash.
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "base/unique_fd.h"
#include "server/daemon/config/config_file.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpurun;
  const UniqueFd file(memfd_create("config", MFD_CLOEXEC));
  GPURUN_FUZZ_CHECK(write(file.get(), data, size) == static_cast<ssize_t>(size));
  server::Config config;
  const Status status =
      server::read_config_file("/proc/self/fd/" + std::to_string(file.get()), &config);
  if (!status.ok()) GPURUN_FUZZ_CHECK(!status.message().empty());
  static_cast<void>(
      server::parse_uid_range(std::string(reinterpret_cast<const char*>(data), size)));
  return 0;
}
