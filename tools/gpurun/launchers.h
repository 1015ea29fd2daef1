// Launchers: programs that start another program, which their arguments name. A check must hold for
// that program, too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpurun::tools {

using Words = std::vector<std::string>;

// The command that `command` starts as env(1), nice(1), nohup(1), setsid(1), stdbuf(1) or
// timeout(1) would. The name of the first word decides. Nothing: another program, or invalid
// arguments, which the launcher itself will report.
//   kRefused  env removes the variables that load our library.
Result<std::optional<Words>> launched_by(const Words& command);

// Success when LD_PRELOAD reaches the program at `path` and every program that known launchers in
// `command` start after it. Checks can_be_preloaded() for each that is found on `search_path`.
Status can_be_preloaded(const std::string& path, const Words& command,
                        const std::string& search_path, const std::string& asan_options);

}  // namespace gpurun::tools
