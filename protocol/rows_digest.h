// One digest of the whole table: equal at both ends exactly when every call means the same to both.
#pragma once

#include <span>

#include "base/sha256.h"
#include "driver_abi/row.h"

namespace gpurun::protocol {

inline Sha256Digest rows_digest(std::span<const driver_abi::Row> rows) {
  Sha256 hash;
  for (const driver_abi::Row& row : rows) {
    hash.update(bytes_of(row.opcode));
    hash.update(bytes_of(row.hash));
  }
  return hash.finish();
}

}  // namespace gpurun::protocol
