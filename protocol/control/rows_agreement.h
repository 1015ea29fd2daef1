// Rows agreement: checks that every call means the same to both ends of a session.
//
// The client's attach carries one digest of its whole table. When the worker's digest is equal, no
// more is exchanged. Otherwise the worker's answer carries the hash of each row that it serves, and
// the client decides:
//
//   a row that the worker lacks     the client answers NOT_SUPPORTED for it
//   a row that the client lacks     is never called
//   a row that differs              the session is refused, with a sentence that names it
//
// A refused row is never sent, so the other end treats it as missing. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "driver_abi/row.h"
#include "protocol/control/control.h"

namespace gpurun::protocol {

// A digest that is equal at both ends exactly when the tables are.
Sha256Digest rows_digest(std::span<const driver_abi::Row> rows);
// As rows_digest(), but takes the digest of our own table from the build, so that a session's start
// does not compute it. Only for a binary that has that table, which gpurund does not.
inline Sha256Digest known_rows_digest(std::span<const driver_abi::Row> rows) {
  const auto ours = driver_abi::rows();
  if (rows.data() != ours.data() || rows.size() != ours.size()) return rows_digest(rows);
  Sha256Digest digest;
  std::ranges::copy(driver_abi::rows_digest(), digest.begin());
  return digest;
}

// The rows that a worker sends. None to a client with the same digest.
std::vector<RowHash> rows_to_tell(std::span<const driver_abi::Row> ours,
                                  const Sha256Digest& theirs);

// For the client. Returns the opcodes of `ours`, ascending, that the server does not have. An alias
// follows its target row, because the target travels. `theirs` is as decode() returns it, opcodes
// ascending. Empty: the tables are equal. kRefused: a row differs.
Result<std::vector<std::uint16_t>> rows_lacking(std::span<const driver_abi::Row> ours,
                                                std::span<const RowHash> theirs,
                                                const std::string& our_release,
                                                const std::string& their_release);

}  // namespace gpurun::protocol
