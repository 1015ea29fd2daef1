// Rows: finds a row. The rows themselves are generated from cuda_driver.toml (rows.inc).
#include <algorithm>
#include <cstring>
#include <iterator>

#include "driver_abi/cuda_abi.h"
#include "driver_abi/row.h"
#include "driver_abi/rows_by_key.h"

namespace gpurun::driver_abi {
namespace {
#include "driver_abi/rows.inc"
}  // namespace

std::span<const Row> rows() noexcept { return kRows; }

std::span<const std::uint8_t, 32> rows_digest() noexcept { return kDigest; }

std::span<const std::uint16_t> opcodes_by_key() noexcept { return kByKey; }

// apigen refuses gaps, so an opcode is an index.
const Row* find_row(std::uint16_t opcode) noexcept {
  return opcode == 0 || opcode > std::size(kRows) ? nullptr : &kRows[opcode - 1];
}

const Row* find_row(const char* symbol) noexcept {
  const auto* place = std::lower_bound(std::begin(kBySymbol), std::end(kBySymbol), symbol,
                                       [](std::uint16_t opcode, const char* wanted) {
                                         return std::strcmp(kRows[opcode - 1].symbol, wanted) < 0;
                                       });
  if (place == std::end(kBySymbol) || std::strcmp(kRows[*place - 1].symbol, symbol) != 0) {
    return nullptr;
  }
  return &kRows[*place - 1];
}

}  // namespace gpurun::driver_abi
