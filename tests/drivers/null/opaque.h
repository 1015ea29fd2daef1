// Opaque texts: text for arguments that rows call opaque (structures with pointers in them,
// parameters of kernels, code images). The text shows contents, so that two calls of equal meaning
// give equal text. Kernel parameters, for example, are the bytes of their block in either form.
// `opaque` remains for pointers that mean something to the caller alone.
#pragma once

#include <cstdint>
#include <string>

#include "driver_abi/row.h"

namespace gpurun::recording {

std::string opaque_text(const driver_abi::Row& row, void* const* arguments, std::size_t index);

// Defined in record.cc.
std::string hex(std::uint64_t value);
std::string bytes_text(const void* place, std::uint64_t count);

}  // namespace gpurun::recording
