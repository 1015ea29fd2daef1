// Names and descriptions of result codes. They are available before cuInit too.
#include "driver_abi/error_codes.h"

#include "emulated/api.h"

namespace gpurun::emulated::api {

CUresult cuGetErrorName(CUresult error, const char** text) {
  return driver_abi::get_error_name(error, text);
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  return driver_abi::get_error_string(error, text);
}

}  // namespace gpurun::emulated::api
