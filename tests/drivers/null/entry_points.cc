// Entry points of the null device. The list of them is generated from the rows (driver_abi/apigen).
#include <cstdint>
#include <iterator>

#include "driver_abi/row.h"
#include "tests/drivers/null/api.h"
#include "tests/drivers/null/entry.h"
#include "tests/drivers/null/scripted_call.h"

namespace {

const gpurun::driver_abi::Row& row_of(std::uint16_t opcode) {
  return *gpurun::driver_abi::find_row(opcode);
}

}  // namespace

#include "tests/drivers/null/entry_points.inc"
