// BorrowedContext: the context that a handle or an address lends to a call of a thread without a
// current context. driver_abi/cuda_driver.toml (context_of) lists these calls and the reasons.
//
// The call is made without the loan first, so a thread with a context pays only one comparison.
// Without a context such a call returns INVALID_CONTEXT without an effect, and is then repeated.
#pragma once

#include "client/interpose/call/forward.h"

namespace gpurun::client::interpose {

// Makes the context current on the calling thread until the end of the scope.
class BorrowedContext {
 public:
  // `kind` of the handle. With kNone, `value` is an address of memory.
  BorrowedContext(HandleKind kind, Handle value) noexcept;
  ~BorrowedContext();
  BorrowedContext(const BorrowedContext&) = delete;
  BorrowedContext& operator=(const BorrowedContext&) = delete;

  // False: the thread has a context already, or `value` has none to lend.
  bool lent() const noexcept { return lane_ != nullptr; }

 private:
  Lane* lane_ = nullptr;
};

template <typename Value, typename Call>
CUresult in_context_of(HandleKind kind, Value value, Call&& call) noexcept {
  const CUresult result = call();
  if (result != CUDA_ERROR_INVALID_CONTEXT) [[likely]]
    return result;
  const BorrowedContext borrowed(kind, handle_of(value));
  return borrowed.lent() ? call() : result;
}

}  // namespace gpurun::client::interpose
