// Entry: the generated call behind the wall, and the result of an exception.
#include "client/interpose/entry/entry.h"

#include <exception>
#include <new>

#include "base/log.h"
#include "client/interpose/entry/generated_call.h"

namespace gpurun::client::interpose {

CUresult result_of_current_exception(const driver_abi::Row& row) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    GPURUN_LOG(kError, "%s: %s", row.symbol, error.what());
  } catch (...) {
    GPURUN_LOG(kError, "%s: an unknown exception", row.symbol);
  }
  return CUDA_ERROR_UNKNOWN;
}

CUresult call_generated(const driver_abi::Row& row, void* const* arguments) noexcept {
  return call_custom(
      row, [&row, arguments] { return static_cast<CUresult>(run_generated(row, arguments)); });
}

}  // namespace gpurun::client::interpose
