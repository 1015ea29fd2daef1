// What the driver keeps per thread, for the threads that call it: the capture mode is relaxed, and
// the context of the call is current.
#pragma once

#include <cstdint>

#include "server/driver/driver_functions.h"

namespace gpurun::server {

// 0 or the CUresult. `owner` tells drivers apart whose threads are the same (tests): a new one
// finds nothing known of this thread.
int enter_context(const DriverFunctions& driver, std::uint64_t owner, void* context);

// Something else may have made another context current on this thread.
void forget_thread_context() noexcept;
// A context has ended: what is current on no thread is known any more.
void forget_all_thread_contexts() noexcept;

// Whether a copy into `stream` would become a node of a graph. False where the driver has no
// captures or the context has failed; a stream that some capture forbids to be asked counts as
// capturing.
bool is_capturing(const DriverFunctions& driver, void* stream);

}  // namespace gpurun::server
