// write_trace_file(): replaces the file as a whole.
#include "client/stats/trace.h"

#include <sys/resource.h>

#include "base/file_io.h"

namespace gpurun::client {

Status write_trace_file(const std::string& folder, const protocol::TraceFile& file) {
  const std::string path = folder + "/" + file.program + "." + std::to_string(file.process) +
                           std::string(protocol::kTraceSuffix);
  const Bytes bytes = protocol::encode(file);
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes.size() > limit.rlim_cur) {
    return Status(Code::kTooLarge, path + ": larger than files of this process may be");
  }
  // A process that is killed here leaves nothing that gpuctl takes for a trace.
  return replace_file(path, bytes);
}

}  // namespace gpurun::client
