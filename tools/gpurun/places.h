// Where gpurun's own parts lie, relative to its binary: the build tree and an installed tree have
// the same shape, and either may be moved as a whole.
//
//   PREFIX/bin/gpurun, gpurund, gpurun-worker
//   PREFIX/lib/gpurun/client/libcuda.so.1    what programs load
//   PREFIX/lib/gpurun/emulated/libcuda.so.1  the emulated device (found by gpurund)
#pragma once

#include <string>

#include "base/result.h"

namespace gpurun::tools {

// A folder with the client library in place of PREFIX/lib/gpurun/client.
inline constexpr const char* kClientFolderVariable = "GPURUN_CLIENT_DIR";
// The CUDA driver of a private server, by absolute path, in place of the one that gpurund finds.
inline constexpr const char* kDriverVariable = "GPURUN_DRIVER";

struct Places {
  std::string client_folder;
  std::string daemon;

  std::string client_library() const { return client_folder + "/libcuda.so.1"; }
  std::string nvml_library() const { return client_folder + "/libnvidia-ml.so.1"; }
  std::string nvjitlink_stand_in() const { return client_folder + "/libgpurun-nvjitlink.so"; }
};

// What a user must know of a part of ours that is missing beside the client library; "" if all are
// there. A folder of GPURUN_CLIENT_DIR is its user's own business. `emulated`: the device is.
std::string missing_part(const Places& places, bool emulated);

// kUnavailable: this very binary cannot be found, which takes an unmounted /proc.
Result<Places> find_places();

// Whether this machine has a GPU of NVIDIA's that its kernel driver serves: a device node.
bool has_nvidia_device();

}  // namespace gpurun::tools
