// Handlers: the handlers of every call, and the state that they share. A worker gives both to its
// executor.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/state/handler_state.h"
#include "server/worker/execution/call.h"

namespace gpurun::server {

// For WorkerOptions::user. `driver` is borrowed and outlives the state. Takes the snapshot of the
// devices.
Result<std::unique_ptr<HandlerState>> make_handler_state(const CudaDriver& driver);

// For WorkerOptions::handlers. WorkerOptions::user must be a HandlerState.
Handlers make_handlers();

// Opcodes, ascending, of the rows that neither `driver` nor a handler can serve
// (protocol::Accept::unserved). The driver must be initialized.
std::vector<std::uint16_t> unserved_rows(const CudaDriver& driver, const Handlers& handlers);

}  // namespace gpurun::server
