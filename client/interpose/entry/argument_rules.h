// Argument rules: the checks of a generated call's arguments that the client makes before it posts
// the call, so that the call itself returns the error.
//
// Source of each rule: the CUDA Driver API manual on the function (return values, descriptions of
// its parameters) and on the enumerations that it takes.
#pragma once

#include "client/interpose/call/forward.h"
#include "client/interpose/call/sound.h"

namespace gpurun::client::interpose {

// `arguments` as call_generated() takes them. The caller checks handles and devices separately. The
// device reaches pinned memory of the arena that they name from now on.
Sound check_arguments(const EntryContext& here, const driver_abi::Row& row, void* const* arguments);

// The same for memory operations of a stream or of a node.
Sound check_memory_operations(const EntryContext& here, const CUstreamBatchMemOpParams* list,
                              unsigned count, unsigned flags);

}  // namespace gpurun::client::interpose
