// Run row: a call of a generated row from a hand-written function.
#pragma once

#include <cstdint>

#include "client/interpose/entry/generated_call.h"
#include "driver_abi/cuda_abi.h"

namespace gpurun::client::interpose {

// `arguments` as the program passes them.
template <typename... Arguments>
CUresult run_row(std::uint16_t code, Arguments... arguments) {
  void* const places[] = {static_cast<void*>(&arguments)...};
  return static_cast<CUresult>(run_generated(*driver_abi::find_row(code), places));
}

}  // namespace gpurun::client::interpose
