// Null device: a libcuda.so.1 on which every call succeeds, memory is real (the host's), and
// kernels do nothing. The call path is measured and tested on it.
//
// Functions with a name in implemented.list are written by hand (api_*.cc). generic() answers all
// others from their row.
#pragma once

#include <cstdint>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"

namespace gpurun::null_device {

// A value that no other handle has and that nothing is mapped at: 0xCA, kind, ordinal * 16.
std::uint64_t mint(driver_abi::HandleKind kind) noexcept;
driver_abi::HandleKind kind_of(std::uint64_t handle) noexcept;

template <typename Handle>
Handle mint_as(driver_abi::HandleKind kind) noexcept {
  return reinterpret_cast<Handle>(mint(kind));
}

// What generic() writes into outputs that are plain bytes: zeros or, in a device that records, a
// pattern that differs by row and parameter.
extern bool g_fill_with_pattern;

// Fills the outputs of a call: mints handles, and writes bytes and texts as above. A NULL that the
// row does not allow gives the row's null_error. Any thread may call it.
CUresult generic(const driver_abi::Row& row, void* const* arguments) noexcept;

}  // namespace gpurun::null_device
