// Places: the paths of gpurun's parts, relative to its binary. The build tree and an installed tree
// have the same layout, and either may be moved as a whole.
//
//   PREFIX/bin/gpurun, gpurund, gpurun-worker
//   PREFIX/lib/gpurun/client/libcuda.so.1    what programs load
//   PREFIX/lib/gpurun/emulated/libcuda.so.1  the emulated device (found by gpurund)
#pragma once

#include <string>

#include "base/result.h"

namespace gpurun::tools {

// Names a folder with the client library, in place of PREFIX/lib/gpurun/client.
inline constexpr const char* kClientFolderVariable = "GPURUN_CLIENT_DIR";
// Names the CUDA driver of a private server, by absolute path, in place of the one that gpurund
// finds.
inline constexpr const char* kDriverVariable = "GPURUN_DRIVER";

struct Places {
  std::string client_folder;
  std::string command;  // gpurun itself.
  std::string daemon;

  std::string client_library() const { return client_folder + "/libcuda.so.1"; }
  std::string nvml_library() const { return client_folder + "/libnvidia-ml.so.1"; }
  std::string device_files() const { return client_folder + "/libgpurun-device-files.so"; }
  std::string cuda_tools() const { return client_folder + "/libgpurun-cuda-tools.so"; }
  std::string ptxas() const { return client_folder + "/gpurun-ptxas"; }
  std::string nvjitlink_stand_in() const { return client_folder + "/libgpurun-nvjitlink.so"; }
};

// A message about a part of ours that is missing beside the client library, or "". Does not check a
// folder of GPURUN_CLIENT_DIR. `emulated`: the device is emulated.
std::string missing_part(const Places& places, bool emulated);

// kUnavailable: this binary cannot be found, because /proc is not mounted.
Result<Places> find_places();

// True when this machine has an NVIDIA GPU with its kernel driver: there is a device node.
bool has_nvidia_device();

}  // namespace gpurun::tools
