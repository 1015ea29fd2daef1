// Version line: the release, the protocol and the commit of this build.
#include "protocol/control/version_line.h"

#include "protocol/control/version.h"

namespace gpurun::protocol {

std::string version_line(std::string_view program) {
  return std::string(program) + " " + kRelease + " (protocol " + std::to_string(kVersion) +
         ", commit " + kCommit + ")";
}

}  // namespace gpurun::protocol
