// Direct calls of rows that are newer than this machine's cuda.h. Types and their order come from
// our own header, which tests/apigen compares with newer ones.
#include "driver_abi/cuda_abi.h"
#include "tests/parity/thunk_call.h"
#include "tests/parity/thunks.h"

int call_by_our_header(std::uint16_t opcode, void* function, void* const* arguments) {
  (void)function, (void)arguments;
  switch (opcode) {
#define THUNK(number, name)
#define OUR_THUNK(number, name) \
  case number:                  \
    return thunk_call::call(static_cast<decltype(&::name)>(nullptr), function, arguments);
#include "tests/parity/thunks.inc"
    default:
      return -1;
  }
}
