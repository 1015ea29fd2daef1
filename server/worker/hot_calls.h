// The handlers of the hot records, found by form: small copy to the device, device copy,
// memset, event record, stream wait.
#pragma once

#include "protocol/record.h"
#include "server/worker/call.h"

namespace gpurun::server {

// nullptr: that form has no handler of its own here.
Handler hot_handler(protocol::Form form) noexcept;

}  // namespace gpurun::server
