// Entry points: the functions that libcuda.so.1 exports. Each hands its call to the client. The
// list of them is generated from the rows (driver_abi/apigen).
#include <cstdint>
#include <iterator>

#include "client/interpose/custom.h"
#include "client/interpose/driver/program_caller.h"
#include "client/interpose/entry/entry.h"
#include "client/interpose/memory/borrowed_context.h"
#include "driver_abi/row.h"

namespace interpose = gpurun::client::interpose;

namespace {

const gpurun::driver_abi::Row& row_of(std::uint16_t opcode) {
  return *gpurun::driver_abi::find_row(opcode);
}

}  // namespace

#include "client/interpose/entry_points.inc"
