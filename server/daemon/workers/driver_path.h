// find_driver(): the absolute path of the CUDA driver library that a server uses.
#pragma once

#include <string>

#include "base/result.h"

namespace gpurun::server {

// `word` is "real" (NVIDIA's, where its packages put it), "emulated" (ours, beside this program),
// or an absolute path, which is returned unchanged. kUnavailable: not found. kInvalidArgument: none
// of these.
Result<std::string> find_driver(const std::string& word);

// The folder of this program, with a slash at the end.
std::string own_folder();

}  // namespace gpurun::server
