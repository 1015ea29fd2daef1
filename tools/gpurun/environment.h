// The environment of what gpurun starts. Pure functions over lists of "NAME=value".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tools/gpurun/places.h"

namespace gpurun::tools {

using Environment = std::vector<std::string>;

// The value of `name`, or "" when it is not set.
std::string_view value_of(const Environment& environment, std::string_view name);

struct ProgramSettings {
  std::vector<std::string> preload;  // Libraries, by absolute path, in this order.
  std::string library_folder;
  std::string session_file;
  bool stats = false;
};

// What the program gets: ours before the user's in LD_PRELOAD and LD_LIBRARY_PATH, and the name of
// the session file. A variable that the user has set himself stays as it is, but for the session
// file: a gpurun within a gpurun has a lease of its own.
// kRefused: a path of ours cannot stand in these variables, which know no quoting.
Result<Environment> program_environment(const Environment& user, const ProgramSettings& settings);

// What the private server gets: the user's environment without what a gpurun around us has added.
Environment server_environment(const Environment& user, const Places& places);

}  // namespace gpurun::tools
