// Places: from the binary's own path to the parts beside it.
#include "tools/gpurun/places.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

namespace gpurun::tools {
namespace {

// The driver's control node of a desktop or server, that of WSL, and those of integrated GPUs.
constexpr const char* kDeviceNodes[] = {"/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl-gpu",
                                        "/dev/nvgpu/igpu0/ctrl"};

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

Result<Places> find_places() {
  char path[PATH_MAX];
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path);
  if (bytes <= 0) return Status::from_errno(errno, "/proc/self/exe");
  const std::string folder = folder_of(std::string(path, static_cast<std::size_t>(bytes)));
  const std::string prefix = folder_of(folder);
  Places places;
  const char* client = getenv(kClientFolderVariable);
  places.client_folder =
      client != nullptr && *client != '\0' ? client : prefix + "/lib/gpurun/client";
  places.command = folder + "/gpurun";
  places.daemon = folder + "/gpurund";
  // A package may install daemons in another folder than commands.
  if (access(places.daemon.c_str(), X_OK) != 0) places.daemon = prefix + "/sbin/gpurund";
  return places;
}

std::string missing_part(const Places& places, bool emulated) {
  const char* own = getenv(kClientFolderVariable);
  if (own != nullptr && *own != '\0') return "";
  const auto missing = [](const std::string& path, const char* what) {
    return path + " is missing: " + what +
           ". Install gpurun whole, or build its target gpurun_install_set";
  };
  if (access(places.nvml_library().c_str(), R_OK) != 0) {
    return missing(places.nvml_library(),
                   "programs that use NVML (nvidia-smi, pynvml, gpustat) find no GPU");
  }
  if (access(places.device_files().c_str(), R_OK) != 0) {
    return missing(places.device_files(), "programs that look for device files (JAX) find no GPU");
  }
  for (const std::string& part : {places.cuda_tools(), places.ptxas()}) {
    if (emulated && access(part.c_str(), R_OK) != 0) {
      return missing(part,
                     "programs that compile with ptxas (JAX, Triton) fail on the emulated device");
    }
  }
  if (emulated && access(places.nvjitlink_stand_in().c_str(), R_OK) != 0) {
    return missing(places.nvjitlink_stand_in(),
                   "programs that link with nvJitLink (Numba) fail on the emulated device");
  }
  return "";
}

bool has_nvidia_device() {
  for (const char* node : kDeviceNodes) {
    // Not access(): within another gpurun that function finds the leased GPUs' device files
    // (client/device_files).
    if (syscall(SYS_faccessat, AT_FDCWD, node, F_OK) == 0) return true;
  }
  return false;
}

}  // namespace gpurun::tools
