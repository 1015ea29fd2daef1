// BorrowedContext: the context that a handle or an address brings to a call of a thread that has no
// current context. driver_abi/cuda_driver.toml (context_of) says which calls, and why.
//
// The call is made as it is first. Without a context it has no effect before it returns
// INVALID_CONTEXT, and is made again.
#pragma once

#include <cstdint>
#include <type_traits>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"
#include "server/emulated/objects/thread_state.h"

namespace gpurun::emulated {

// Current for the calling thread until the end of the scope.
class BorrowedContext {
 public:
  // `kind` of the handle; kNone: `value` is an address of memory.
  BorrowedContext(driver_abi::HandleKind kind, std::uint64_t value);
  ~BorrowedContext();
  BorrowedContext(const BorrowedContext&) = delete;
  BorrowedContext& operator=(const BorrowedContext&) = delete;

  // False: the thread has a context, or `value` brings none.
  bool lent() const { return lent_; }

 private:
  bool lent_ = false;
};

template <typename Value, typename Call>
CUresult in_context_of(driver_abi::HandleKind kind, Value value, Call&& call) {
  const CUresult result = call();
  if (result != CUDA_ERROR_INVALID_CONTEXT) return result;
  std::uint64_t number = 0;
  if constexpr (std::is_pointer_v<Value>) {
    number = reinterpret_cast<std::uintptr_t>(value);
  } else {
    number = value;
  }
  const BorrowedContext borrowed(kind, number);
  return borrowed.lent() ? call() : result;
}

}  // namespace gpurun::emulated
