// gpurun login: takes a user's token for a server, and makes that server the default.
#pragma once

#include <string>

#include "base/status.h"

namespace gpurun::tools {

// `argv[1]` is "login". Prints what it did, or one line about the failure. Returns the exit status:
// 0, or kExitOwnFailure. Stores nothing unless the server has accepted the token.
int log_in(int argc, const char* const* argv);

}  // namespace gpurun::tools
