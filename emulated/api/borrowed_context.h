// BorrowedContext: the context that a handle or an address lends to a call on a thread without a
// current context. driver_abi/cuda_driver.toml (context_of) lists these calls and the reasons.
//
// The call is first made without a borrowed context. Without a context it has no effect before it
// returns INVALID_CONTEXT. It is then made again with the borrowed one.
#pragma once

#include <cstdint>
#include <type_traits>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"
#include "emulated/objects/thread_state.h"

namespace gpurun::emulated {

// The borrowed context is current for the calling thread until the end of the scope.
class BorrowedContext {
 public:
  // `kind`: the kind of the handle `value`. kNone: `value` is an address of memory.
  BorrowedContext(driver_abi::HandleKind kind, std::uint64_t value);
  ~BorrowedContext();
  BorrowedContext(const BorrowedContext&) = delete;
  BorrowedContext& operator=(const BorrowedContext&) = delete;

  // False: the thread has a context, or `value` belongs to none.
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
