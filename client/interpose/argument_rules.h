// What generated calls answer for arguments that CUDA refuses, where they are answered before the
// worker has looked at them: the program shall hear of it from the call itself.
//
// Source of each rule: the CUDA Driver API manual on the function (return values, and the words on
// its parameters) and on the enumerations that it takes.
#pragma once

#include "client/interpose/forward.h"

namespace gpurun::client::interpose {

enum class Sound : std::uint8_t {
  kRight,
  kWrong,    // CUDA_ERROR_INVALID_VALUE.
  kUnknown,  // Only the worker's driver can tell: the call is one that waits.
};

// `arguments` as call_generated() takes them; `handles` are the session's. Handles and devices are
// checked elsewhere.
Sound check_arguments(const driver_abi::Row& row, void* const* arguments,
                      const HandleTable& handles);

}  // namespace gpurun::client::interpose
