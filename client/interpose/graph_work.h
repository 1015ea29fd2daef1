// Work of graphs that touches the program's memory, and copies as nodes, ready to be sent
// (protocol/graph_host.h).
#pragma once

#include <vector>

#include "client/graph_host.h"
#include "client/interpose/driver/copy.h"
#include "client/interpose/forward.h"
#include "protocol/graph_host.h"

namespace gpurun::client::interpose {

struct GraphWork {
  protocol::GraphNodePayload payload;
  GraphHost::Operation operation;  // Unless payload.work is kCopyDevice.
};

GraphWork work_of(CUhostFn function, void* user);
// INVALID_VALUE: a box of nothing, or device memory or an array beyond its end; INVALID_HANDLE: no
// array.
int work_of(const Here& here, const Copy& copy, GraphWork* work);
int work_of(const Here& here, const CUDA_MEMCPY3D* given, GraphWork* work);

// Sends the work under the opcode of `row`, with the handles that stand in its payload already.
// `awaited`: returns what the worker's driver said.
int send_work(const Here& here, std::uint16_t row, CallSite site, GraphWork work,
              const std::vector<Handle>& dependencies, bool awaited);

// Into the capture that `stream` is part of.
int capture_work(const Here& here, Handle stream, GraphWork work);

}  // namespace gpurun::client::interpose
