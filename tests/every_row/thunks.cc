// Nothing here knows the table: types and their order come from cuda.h.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>

#include <cstddef>
#include <utility>

#include "tests/every_row/thunks.h"

namespace {

template <typename... Arguments, std::size_t... Index>
int call(CUresult (*)(Arguments...), void* function, void* const* arguments,
         std::index_sequence<Index...>) {
  auto* typed = reinterpret_cast<CUresult (*)(Arguments...)>(function);
  (void)arguments;
  return typed(*static_cast<Arguments*>(arguments[Index])...);
}

template <typename... Arguments>
int call(CUresult (*type)(Arguments...), void* function, void* const* arguments) {
  return call(type, function, arguments, std::index_sequence_for<Arguments...>());
}

}  // namespace

int call_by_cuda_h(std::uint16_t opcode, void* function, void* const* arguments) {
  switch (opcode) {
#define THUNK(number, name) \
  case number:              \
    return call(static_cast<decltype(&::name)>(nullptr), function, arguments);
#include "tests/every_row/thunks.inc"
    default:
      return -1;
  }
}

bool has_cuda_h() { return true; }
