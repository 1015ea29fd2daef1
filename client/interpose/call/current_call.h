// Current call: the row that the calling thread is in, and what stream 0 means in it.
#pragma once

#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"

namespace gpurun::client::interpose {

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

}  // namespace gpurun::client::interpose
