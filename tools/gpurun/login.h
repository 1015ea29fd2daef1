// gpurun login: takes a user's token for a server, and makes that server the default.
#pragma once

#include <string>

#include "base/status.h"

namespace gpurun::tools {

// `argv[1]` is "login". Prints what it did, or one line of what failed, and returns the exit
// status: 0, or kExitOwnFailure. Nothing is stored unless the server has accepted the token.
int log_in(int argc, const char* const* argv);

}  // namespace gpurun::tools
