// Graph work: host functions and copies as graph nodes, ready to be sent
// (protocol/calls/graph_host.h).
#pragma once

#include <vector>

#include "client/interpose/call/forward.h"
#include "client/interpose/driver/copy_box.h"
#include "client/session/graph_host.h"
#include "protocol/calls/graph_host.h"

namespace gpurun::client::interpose {

struct GraphWork {
  protocol::GraphNodePayload payload;
  GraphHost::Operation operation;  // Unused when payload.work is kCopyDevice.
  bool sure = true;                // The client knows all memory on the device that it names.
};

GraphWork work_of(CUhostFn function, void* user);
// Return INVALID_VALUE for an empty box and for device memory or an array that ends inside the box.
// Return INVALID_HANDLE for a wrong array handle.
int work_of(const EntryContext& here, const Copy& copy, GraphWork* work);
int work_of(const EntryContext& here, const CUDA_MEMCPY3D* given, GraphWork* work);

// Sends the work under the opcode of `row`, with the handles that its payload already holds.
// `awaited`: waits, and returns the result of the worker's driver, or an earlier call's failure.
// `*done` (optional) tells whether the work itself was taken.
int send_work(const EntryContext& here, std::uint16_t row, CallSite site, GraphWork work,
              const std::vector<Handle>& dependencies, bool awaited, bool* done = nullptr);

// Adds the work to the capture that `stream` is part of.
int capture_work(const EntryContext& here, Handle stream, GraphWork work);

}  // namespace gpurun::client::interpose
