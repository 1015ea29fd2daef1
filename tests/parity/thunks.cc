// Thunks: types and their order come from cuda.h. Nothing here may use the table.
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>

#include "tests/parity/thunk_call.h"
#include "tests/parity/thunks.h"

int call_by_cuda_h(std::uint16_t opcode, void* function, void* const* arguments) {
  switch (opcode) {
#define OUR_THUNK(number, name)
#define THUNK(number, name) \
  case number:              \
    return thunk_call::call(static_cast<decltype(&::name)>(nullptr), function, arguments);
#include "tests/parity/thunks.inc"
    default:
      return call_by_our_header(opcode, function, arguments);
  }
}

bool has_cuda_h() { return true; }
