// Entry: the wall that every intercepted call passes. The generated entry points call these
// functions.
//
// Only this wall checks for an unconnected process and a forked child, mints handles and packs
// arguments. It catches every exception, so that none reaches the program. A generated entry point
// has one of these forms:
//
//   CUresult cuX(A a, B b) { void* arguments[] = {&a, &b}; return call_generated(ROW, arguments); }
//   CUresult cuY(A a)      { return call_custom(ROW, [&] { return custom::cuY(a); }); }
//   CUresult cuZ(A)        { return call_refused(ROW); }
//
// An alias (ptsz, ptds, an old name) passes its own row. The row names the opcode of the function
// that the alias stands for.
#pragma once

#include "client/interpose/call/current_call.h"
#include "client/interpose/call/refusals.h"
#include "client/interpose/capture/capture_count.h"
#include "client/interpose/capture/capture_wall.h"
#include "client/interpose/capture/ordered_changes.h"
#include "client/interpose/memory/kept_frees.h"
#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// `arguments[i]` points to the i-th argument. Any thread.
CUresult call_generated(const driver_abi::Row& row, void* const* arguments) noexcept;

// The program's result after an exception: memory ran out, or a logged error of ours.
CUresult result_of_current_exception(const driver_abi::Row& row) noexcept;

template <typename Body>
CUresult call_custom(const driver_abi::Row& row, Body&& body) noexcept {
  const CallScope scope(row);
  if (refused_by_server(row)) return call_lacking(row);
  try {
    if (kept_frees_exist() && scope.outermost()) post_kept_frees_before(row);
    if (capturing_somewhere() && scope.outermost()) {
      if (const int refused = refuse_while_capturing(row); refused != 0) {
        return static_cast<CUresult>(refused);
      }
    }
    if (!ordered_changes_exist() || !scope.outermost()) return body();
    const int earlier = settle_before(row);
    const CUresult result = body();
    return result != CUDA_SUCCESS ? result : static_cast<CUresult>(earlier);
  } catch (...) {
    return result_of_current_exception(row);
  }
}

}  // namespace gpurun::client::interpose
