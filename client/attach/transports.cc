// parse_transports(): reads a list of names separated by commas.
#include "client/attach/transports.h"

#include <algorithm>
#include <string>

namespace gpurun::client {
namespace {

Status wrong(std::string_view text, const std::string& why) {
  return Status(Code::kInvalidArgument, std::string(kTransportsVariable) + " is '" +
                                            std::string(text.substr(0, 80)) + "': " + why +
                                            "; it may be shm, tcp, or both with a comma between");
}

}  // namespace

Result<std::vector<TransportKind>> parse_transports(std::string_view text) {
  if (text.empty()) return all_transports();
  std::vector<TransportKind> kinds;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view name = rest.substr(0, comma);
    TransportKind kind = TransportKind::kTcp;
    if (name == "shm") {
      kind = TransportKind::kSharedMemory;
    } else if (name != "tcp") {
      return wrong(text, "'" + std::string(name.substr(0, 40)) + "' is no transport");
    }
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) {
      return wrong(text, "it names " + std::string(name) + " twice");
    }
    kinds.push_back(kind);
    if (comma == std::string_view::npos) return kinds;
    rest.remove_prefix(comma + 1);
  }
}

}  // namespace gpurun::client
