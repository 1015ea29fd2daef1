// Thread context: the driver's state of each thread that calls it. The capture mode is relaxed, and
// the context of the call is current.
#pragma once

#include <cstdint>

#include "server/driver/driver_functions.h"

namespace gpurun::server {

// Returns 0 or the CUresult. `owner` distinguishes drivers that share threads (tests): for a new
// owner nothing is known of this thread.
int enter_context(const DriverFunctions& driver, std::uint64_t owner, void* context);

// Other code may have made another context current on this thread.
void forget_thread_context() noexcept;
// A context has ended. The current context of every thread is unknown now.
void forget_all_thread_contexts() noexcept;

// A capture may begin in this process from now on. Before that is_capturing() does not ask the
// driver. Call before the driver begins it. Any thread.
void note_capture() noexcept;

// Whether a copy into `stream` would become a node of a graph. False where the driver has no
// captures or the context has failed. A stream that must not be queried because of a capture counts
// as capturing.
bool is_capturing(const DriverFunctions& driver, void* stream);

}  // namespace gpurun::server
