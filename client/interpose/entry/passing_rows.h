// Passing rows: generated rows of which the worker runs the calls past the streams' queues.
#pragma once

#include <cstdint>

namespace gpurun::client::interpose {

// Returns whether a local driver executes such calls while the device works, and they do not affect
// queued work. They read host state, create an object, set what later allocations use, or build a
// graph, which is not an executable.
bool passes_streams(std::uint16_t row);

}  // namespace gpurun::client::interpose
