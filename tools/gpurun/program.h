// Finds the program that gpurun is to start, and says why our library could not be loaded into it.
#pragma once

#include <string>

#include "base/result.h"

namespace gpurun::tools {

// The file that a shell would execute for `word`: itself when it holds a slash, else the first
// executable of that name on `search_path` (the PATH variable; an empty part is the current
// folder).
//   kUnavailable  there is no such file (exit status 127)
//   kRefused      it is there but cannot be executed (exit status 126)
Result<std::string> find_program(const std::string& word, const std::string& search_path);

// Whether LD_PRELOAD reaches the program at `path` (a file, or a script whose interpreter is looked
// at). Success, or kRefused with a sentence that says why not and what to do instead: setuid or
// file capabilities, statically linked, musl, another machine's or word size's, AddressSanitizer,
// sudo. `asan_options` is the value of ASAN_OPTIONS, or "".
Status can_be_preloaded(const std::string& path, const std::string& asan_options);

}  // namespace gpurun::tools
