// make_trace_folder(): checks before the program runs, because an error afterwards would be too
// late.
#include "tools/gpurun/trace_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace gpurun::tools {

Result<std::string> make_trace_folder(const std::string& word) {
  const auto wrong = [&word](const std::string& why) {
    return Status(Code::kInvalidArgument, "--trace " + word + ": " + why);
  };
  if (mkdir(word.c_str(), 0700) != 0 && errno != EEXIST) return wrong(std::strerror(errno));
  const std::unique_ptr<char, decltype(&std::free)> full(realpath(word.c_str(), nullptr),
                                                         &std::free);
  struct stat facts {};
  if (full == nullptr || stat(full.get(), &facts) != 0) return wrong(std::strerror(errno));
  if (!S_ISDIR(facts.st_mode)) return wrong("a folder must be named, and this is not one");
  if (access(full.get(), W_OK | X_OK) != 0) return wrong(std::strerror(errno));
  return std::string(full.get());
}

}  // namespace gpurun::tools
