// gpuctl report: what whoever mends a fault needs to know of this machine, as one text file.
#pragma once

#include <string>
#include <string_view>

#include "tools/gpuctl/list.h"

namespace gpurun::tools {

// Whether a variable belongs into a report: those that steer gpurun, CUDA, the loader and the
// libraries that use them.
bool is_reported_variable(std::string_view name);
// Whether its value is kept out of it, judged by its name.
bool holds_a_secret(std::string_view name);
// Whether a value says that it is one: a URL with a user, or "key=" and the like.
bool is_a_secret(std::string_view value);
// Whether a variable that names a file with a secret may hold the secret itself.
bool is_misplaced(std::string_view name, std::string_view value);

// Writes the report to `path` ("-": stdout). The exit status.
int write_report(const std::string& path, const ServerChoice& choice);

}  // namespace gpurun::tools
