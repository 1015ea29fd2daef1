// Worker exit codes: statuses beyond 0 and 1 by which a worker tells its daemon why it ended.
#pragma once

namespace gpurun::server {

inline constexpr int kExitForbiddenCall = 85;  // server/worker/sandbox/system_call_filter.h
inline constexpr int kExitMemoryLimit = 86;    // server/worker/sandbox/confinement.h

}  // namespace gpurun::server
