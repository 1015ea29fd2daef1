// Version line: the answer of each program to --version, which also stands in logs and reports.
#pragma once

#include <string>
#include <string_view>

namespace gpurun::protocol {

// "gpurun 0.1.0 (protocol 5, commit 50f9d4fe)" for the program gpurun. The commit is that of the
// sources at the build, with "+changes" if they had other changes. "commit unknown": the sources
// came without git, and not from git archive.
std::string version_line(std::string_view program);

// Eight digits of the commit, as above.
extern const char* const kCommit;

}  // namespace gpurun::protocol
