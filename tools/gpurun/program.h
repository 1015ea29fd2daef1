// find_program(): finds the program that gpurun must start. can_be_preloaded() checks that our
// library can be loaded into it.
#pragma once

#include <string>

#include "base/result.h"

namespace gpurun::tools {

// The file that a shell would execute for `word`. A word with a slash is the file itself. Otherwise
// it is the first executable of that name on `search_path` (the PATH variable, where an empty part
// is the current folder).
//   kUnavailable  there is no such file (exit status 127)
//   kRefused      it exists but cannot be executed (exit status 126)
Result<std::string> find_program(const std::string& word, const std::string& search_path);

// Success when LD_PRELOAD reaches the program at `path`. For a script, checks its interpreter.
// kRefused: the message says why not, and what to do instead. Reasons are setuid or file
// capabilities, static linking, musl, another machine or word size, AddressSanitizer, sudo.
// `asan_options` is the value of ASAN_OPTIONS, or "".
Status can_be_preloaded(const std::string& path, const std::string& asan_options);

}  // namespace gpurun::tools
