// Programs that start another one, which their own words name: what is true of that one counts,
// too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpurun::tools {

using Words = std::vector<std::string>;

// The command that `command` starts as env(1), nice(1), nohup(1), setsid(1), stdbuf(1) or
// timeout(1) would, found by its first word's name. Nothing: it is none of these, or its words are
// not understood, which is its own business to say.
//   kRefused  env is told to drop the variables that load our library.
Result<std::optional<Words>> launched_by(const Words& command);

// Whether LD_PRELOAD reaches the program at `path` and whatever known launchers in `command` start
// after it: can_be_preloaded() of each that is found on `search_path`.
Status can_be_preloaded(const std::string& path, const Words& command,
                        const std::string& search_path, const std::string& asan_options);

}  // namespace gpurun::tools
