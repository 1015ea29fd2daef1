// Rows agreement: whether every call means the same to both ends of a session.
//
// The client's attach carries one digest of its whole table. Where the worker's is equal, nothing
// more is said. Else the worker's answer carries the hash of each row that it serves, and the
// client decides:
//
//   a row that the worker lacks     the client answers NOT_SUPPORTED for it
//   a row that the client lacks     is never called
//   a row that differs              the session is refused, with a sentence that names it
//
// A refused row is never sent, so it is to the other end as if it were lacking. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "driver_abi/row.h"
#include "protocol/control.h"

namespace gpurun::protocol {

// Equal at both ends exactly when the tables are.
Sha256Digest rows_digest(std::span<const driver_abi::Row> rows);
// The same; that of our own table was made with it, and is not made again in each session's start.
// For who has that table, which gpurund has not.
inline Sha256Digest known_rows_digest(std::span<const driver_abi::Row> rows) {
  const auto ours = driver_abi::rows();
  if (rows.data() != ours.data() || rows.size() != ours.size()) return rows_digest(rows);
  Sha256Digest digest;
  std::ranges::copy(driver_abi::rows_digest(), digest.begin());
  return digest;
}

// What a worker says of its table: nothing to a client whose digest is the same.
std::vector<RowHash> rows_to_tell(std::span<const driver_abi::Row> ours,
                                  const Sha256Digest& theirs);

// In the client. Opcodes of `ours`, ascending, whose calls the server does not know; an alias goes
// with the row that it stands for, because that is what travels. `theirs` is as decode() lets it
// pass, opcodes ascending; empty: the tables are equal. kRefused: a row differs.
Result<std::vector<std::uint16_t>> rows_lacking(std::span<const driver_abi::Row> ours,
                                                std::span<const RowHash> theirs,
                                                const std::string& our_release,
                                                const std::string& their_release);

}  // namespace gpurun::protocol
