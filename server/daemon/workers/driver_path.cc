// find_driver(): does not use the loader's own search. That obeys LD_LIBRARY_PATH, which names our
// client library in a process that gpurun started.
#include "server/daemon/workers/driver_path.h"

#include <limits.h>
#include <unistd.h>

namespace gpurun::server {
namespace {

#if defined(__aarch64__)
#define GPURUN_MULTIARCH "aarch64-linux-gnu"
#else
#define GPURUN_MULTIARCH "x86_64-linux-gnu"
#endif

// Where NVIDIA's installer, the distributions' packages, the container toolkit, WSL and NixOS put
// libcuda.so.1.
constexpr const char* kFolders[] = {
    "/usr/lib/" GPURUN_MULTIARCH,
    "/usr/lib/" GPURUN_MULTIARCH "/nvidia/current",
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/nvidia",
    "/run/opengl-driver/lib",
    "/usr/lib/" GPURUN_MULTIARCH "/tegra",
    "/usr/lib/" GPURUN_MULTIARCH "/nvidia",
};

Result<std::string> find_real() {
  for (const char* folder : kFolders) {
    const std::string path = std::string(folder) + "/libcuda.so.1";
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return Status(Code::kUnavailable,
                "NVIDIA's driver library libcuda.so.1 is in none of the usual folders; install "
                "the driver, or name the library by its absolute path (--driver)");
}

}  // namespace

std::string own_folder() {
  std::string path(PATH_MAX, '\0');
  const ssize_t bytes = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  return path.substr(0, path.rfind('/') + 1);
}

Result<std::string> find_driver(const std::string& word) {
  if (word == "real") return find_real();
  if (word == "emulated") {
    const std::string path = own_folder() + "../lib/gpurun/emulated/libcuda.so.1";
    char real[PATH_MAX];
    if (realpath(path.c_str(), real) != nullptr) return std::string(real);
    return Status(Code::kUnavailable,
                  "the emulated device is not installed: " + path + " is missing");
  }
  if (!word.empty() && word[0] == '/') return word;
  return Status(
      Code::kInvalidArgument,
      "driver is '" + word + "', which is neither real, nor emulated, nor an absolute path");
}

}  // namespace gpurun::server
