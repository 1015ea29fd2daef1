// Hot calls: the handlers of the hot records, found by form. These are small copy to the device,
// device copy, memset, event record and stream wait.
#pragma once

#include "protocol/log/record.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

// nullptr: the form has no handler here.
Handler hot_handler(protocol::Form form) noexcept;

}  // namespace gpurun::server
