// Refusals: the calls that the client refuses by their rows, with one log line per function.
#pragma once

#include "client/interpose/call/process.h"
#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// CUDA_ERROR_NOT_SUPPORTED, and one log line per function with the row's reason.
CUresult call_refused(const driver_abi::Row& row) noexcept;

// As call_refused(), for a part of a served row. `reason` names the part.
CUresult refuse_part(const driver_abi::Row& row, const char* reason) noexcept;

// As call_refused(), for cuLibraryGetManaged. The runtime asks for each __managed__ variable at
// program start and goes on without it. Host code that touches one then ends by SIGSEGV, so the log
// line says that, names the first variable, and has the reason.
CUresult refuse_managed_variable(const char* name, const char* reason) noexcept;

// As call_refused(), for cuMemAllocManaged in a process without a host arena.
CUresult refuse_managed_memory(const driver_abi::Row& row) noexcept;

// As call_refused(), for a custom row that has no function yet (client/interpose/not_yet.list).
CUresult call_not_yet(const driver_abi::Row& row) noexcept;

// Refuses a row that the server does not know (server_lacks()) or that its driver cannot serve
// (driver_lacks()).
CUresult call_lacking(const driver_abi::Row& row) noexcept;
// Checked before the call. A local call is answered in the client, whatever the server knows. A
// custom function checks the rows that it sends when it sends them (post_row(), call_row()).
inline bool refused_by_server(const driver_abi::Row& row) noexcept {
  if (row.completion == driver_abi::Completion::kLocal) return false;
  return server_lacks(row.opcode) ||
         (row.implementation == driver_abi::Implementation::kGenerated &&
          driver_lacks(row.alias_opcode));
}

}  // namespace gpurun::client::interpose
