// Rows agreement: compares two tables of rows, and finds which end to update.
#include "protocol/control/rows_agreement.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

namespace gpurun::protocol {
namespace {

using driver_abi::Completion;
using driver_abi::Row;

const RowHash* find(std::span<const RowHash> rows, std::uint16_t opcode) {
  const auto place = std::lower_bound(
      rows.begin(), rows.end(), opcode,
      [](const RowHash& row, std::uint16_t wanted) { return row.opcode < wanted; });
  return place == rows.end() || place->opcode != opcode ? nullptr : &*place;
}

// "1.2.3" as numbers. Nothing for any other text, which an untrusted peer may send.
std::optional<std::array<unsigned, 3>> release_numbers(std::string_view text) {
  std::array<unsigned, 3> numbers{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (at == end || *at++ != '.')) return std::nullopt;
    const auto [rest, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc()) return std::nullopt;
    at = rest;
  }
  if (at != end) return std::nullopt;
  return numbers;
}

std::string whom_to_update(const std::string& ours, const std::string& theirs) {
  if (ours == theirs) return "they are built from different sources: install one build on both";
  const auto our_numbers = release_numbers(ours);
  const auto their_numbers = release_numbers(theirs);
  if (!our_numbers || !their_numbers || *our_numbers == *their_numbers) {
    return "update the older of the two";
  }
  return *our_numbers < *their_numbers ? "update the client" : "update the server";
}

}  // namespace

Sha256Digest rows_digest(std::span<const Row> rows) {
  Sha256 hash;
  for (const Row& row : rows) {
    hash.update(bytes_of(row.opcode));
    hash.update(bytes_of(row.hash));
  }
  return hash.finish();
}

std::vector<RowHash> rows_to_tell(std::span<const Row> ours, const Sha256Digest& theirs) {
  std::vector<RowHash> told;
  if (rows_digest(ours) == theirs) return told;
  for (const Row& row : ours) {
    if (row.completion != Completion::kRefused) told.push_back({row.opcode, row.hash});
  }
  return told;
}

Result<std::vector<std::uint16_t>> rows_lacking(std::span<const Row> ours,
                                                std::span<const RowHash> theirs,
                                                const std::string& our_release,
                                                const std::string& their_release) {
  std::vector<std::uint16_t> lacking;
  if (theirs.empty()) return lacking;
  const char* differs = nullptr;
  std::size_t differing = 0;
  for (const Row& row : ours) {
    if (row.completion == Completion::kRefused) continue;
    const RowHash* same = find(theirs, row.opcode);
    if (same != nullptr && same->hash != row.hash && differing++ == 0) differs = row.symbol;
    if (find(theirs, row.alias_opcode) == nullptr) lacking.push_back(row.opcode);
  }
  if (differing == 0) return lacking;
  const std::string more =
      differing == 1 ? std::string() : " (and " + std::to_string(differing - 1) + " more)";
  return Status(Code::kRefused, std::string(differs) + more +
                                    " means something else to the server (gpurun " + their_release +
                                    ") than to this client (gpurun " + our_release +
                                    "): " + whom_to_update(our_release, their_release));
}

}  // namespace gpurun::protocol
