// gpuctl report: writes what a maintainer needs to know about this machine into one text file.
#pragma once

#include <string>
#include <string_view>

#include "tools/gpuctl/list.h"

namespace gpurun::tools {

// True when a variable belongs in a report: those for gpurun, CUDA, the loader and the libraries
// that use them.
bool is_reported_variable(std::string_view name);
// True when its name shows that its value is a secret, which a report leaves out.
bool holds_a_secret(std::string_view name);
// True when the value itself looks like a secret: a URL with a user, or "key=" and the like.
bool is_a_secret(std::string_view value);
// True when a variable for the name of a secret file may hold the secret itself.
bool is_misplaced(std::string_view name, std::string_view value);

// Writes the report to `path` ("-": stdout). Returns the exit status.
int write_report(const std::string& path, const ServerChoice& choice);

}  // namespace gpurun::tools
