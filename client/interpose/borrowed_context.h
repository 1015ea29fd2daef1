// BorrowedContext: the context that a handle or an address brings to a call of a thread that has no
// current context. driver_abi/cuda_driver.toml (context_of) says which calls, and why.
//
// The call is made as it is first, so that a thread with a context pays one comparison. Without a
// context such a call has no effect before it returns INVALID_CONTEXT, and is made again.
#pragma once

#include "client/interpose/forward.h"

namespace gpurun::client::interpose {

// Current for the calling thread until the end of the scope.
class BorrowedContext {
 public:
  // `kind` of the handle; kNone: `value` is an address of memory.
  BorrowedContext(HandleKind kind, Handle value) noexcept;
  ~BorrowedContext();
  BorrowedContext(const BorrowedContext&) = delete;
  BorrowedContext& operator=(const BorrowedContext&) = delete;

  // False: the thread has a context, or `value` brings none.
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
