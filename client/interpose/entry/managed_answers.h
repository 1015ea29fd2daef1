// Managed answers: calls about managed memory that the client answers by itself, because nothing
// moves (client/interpose/memory/managed_memory.h).
#pragma once

#include "client/interpose/call/forward.h"
#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// Returns whether the call names managed memory of this process. `*result` is then the call's
// result. `arguments` are the program's. A current context must exist, and the stream must have
// been checked.
bool answer_managed(const EntryContext& here, const driver_abi::Row& row, void* const* arguments,
                    int* result);

}  // namespace gpurun::client::interpose
