// Entry points of the changed device. The list of them is generated from the rows
// (driver_abi/apigen).
#include <cstdint>

#include "driver_abi/row.h"
#include "tests/drivers/changed/scripted_call.h"

namespace {

const gpurun::driver_abi::Row& row_of(std::uint16_t opcode) {
  return *gpurun::driver_abi::find_row(opcode);
}

}  // namespace

#include "tests/drivers/changed/entry_points.inc"
