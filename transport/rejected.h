// Rejected: a transport, device or port that a session does not use, with the reason.
#pragma once

#include <string>

namespace gpurun::transport {

// For people.
struct Rejected {
  std::string name;
  std::string reason;
};

}  // namespace gpurun::transport
