// Entry: the wall that every intercepted call passes. The generated entry points call these
// functions.
//
// Only this wall connects at first need, checks for a forked child, mints, packs, and catches
// everything, so that no exception reaches the program. A generated entry point is
//
//   CUresult cuX(A a, B b) { void* arguments[] = {&a, &b}; return call_generated(ROW, arguments); }
//   CUresult cuY(A a)      { return call_custom(ROW, [&] { return custom::cuY(a); }); }
//   CUresult cuZ(A)        { return call_refused(ROW); }
//
// An alias (ptsz, ptds, an old name) passes its own row, which names the opcode that it stands for.
#pragma once

#include "client/interpose/capture_wall.h"
#include "client/interpose/process.h"
#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// `arguments[i]` points to the i-th argument. Any thread.
CUresult call_generated(const driver_abi::Row& row, void* const* arguments) noexcept;

// CUDA_ERROR_NOT_SUPPORTED, and one log line per function with the row's reason.
CUresult call_refused(const driver_abi::Row& row) noexcept;

// As call_refused(), for cuLibraryGetManaged. The runtime asks for each __managed__ variable at
// program start and goes on without it. Host code that touches one then ends by SIGSEGV, so the log
// line says that and names the first variable.
CUresult refuse_managed_variable(const driver_abi::Row& row, const char* name) noexcept;

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

// The meaning of stream 0 in this thread's current call: 0 (legacy), or 2 (the thread's own) in the
// _ptds and _ptsz copies. For custom functions.
CUstream default_stream() noexcept;

// The row of this thread's outermost current call. nullptr in our own threads.
const driver_abi::Row* current_row() noexcept;

// Marks the current call of this thread. A nested call (a custom function that calls another
// function's implementation) keeps the outer call's default stream.
class CallScope {
 public:
  explicit CallScope(const driver_abi::Row& row) noexcept;
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  bool outermost() const noexcept { return outermost_; }

 private:
  bool outermost_;
};

// The program's result after an exception: memory ran out, or a logged error of ours.
CUresult result_of_current_exception(const driver_abi::Row& row) noexcept;

template <typename Body>
CUresult call_custom(const driver_abi::Row& row, Body&& body) noexcept {
  const CallScope scope(row);
  if (refused_by_server(row)) return call_lacking(row);
  try {
    if (capturing_somewhere() && scope.outermost()) {
      if (const int refused = refuse_while_capturing(row); refused != 0) {
        return static_cast<CUresult>(refused);
      }
    }
    return body();
  } catch (...) {
    return result_of_current_exception(row);
  }
}

}  // namespace gpurun::client::interpose
