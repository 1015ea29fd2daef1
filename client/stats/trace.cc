// write_trace_file(): makes the file as a whole. Processes of several PID namespaces can have the
// same number, so an earlier file keeps its name.
#include "client/stats/trace.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "base/file_io.h"

namespace gpurun::client {

Status write_trace_file(const std::string& folder, const protocol::TraceFile& file) {
  const std::string begin = folder + "/" + file.program + "." + std::to_string(file.process);
  const std::string suffix(protocol::kTraceSuffix);
  std::string path = begin + suffix;
  struct stat facts {};
  for (int again = 2; lstat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode); ++again) {
    path = begin + "-" + std::to_string(again) + suffix;
  }
  const Bytes bytes = protocol::encode(file);
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes.size() > limit.rlim_cur) {
    return Status(Code::kTooLarge, path + ": larger than files of this process may be");
  }
  // A process that is killed here leaves nothing that gpuctl takes for a trace.
  return replace_file(path, bytes);
}

}  // namespace gpurun::client
