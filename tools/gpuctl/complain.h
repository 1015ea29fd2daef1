// complain(): writes a line to gpuctl's stderr, without tokens that a user gave in a wrong place.
#pragma once

#include <cstdio>
#include <string>

#include "protocol/auth/secret_text.h"

namespace gpurun::tools {

inline void complain(const std::string& text) {
  std::fprintf(stderr, "gpuctl: %s\n", protocol::hide_tokens(text).c_str());
}

}  // namespace gpurun::tools
