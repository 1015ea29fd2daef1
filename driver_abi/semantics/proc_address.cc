// Proc address: the search behind cuGetProcAddress, over the generated rows.
#include "driver_abi/semantics/proc_address.h"

#include <algorithm>
#include <cstring>

#include "driver_abi/rows_by_key.h"

namespace gpurun::driver_abi {
namespace {

constexpr int kSuccess = 0;
constexpr int kInvalidValue = 1;
constexpr int kNotFound = 500;
constexpr int kFoundStatus = 0;
constexpr int kUnknownStatus = 1;
constexpr int kNewerStatus = 2;

}  // namespace

ProcAddress find_proc_address(const char* base, int cuda_version, std::uint64_t flags,
                              int driver_version) noexcept {
  if (base == nullptr || flags > kProcPerThreadStream) return {kInvalidValue, 0, nullptr};
  const std::span<const std::uint16_t> keys = opcodes_by_key();
  const auto* place = std::lower_bound(keys.data(), keys.data() + keys.size(), base,
                                       [](std::uint16_t opcode, const char* wanted) {
                                         return std::strcmp(find_row(opcode)->base, wanted) < 0;
                                       });
  const Row* plain = nullptr;
  const Row* per_thread = nullptr;
  bool known = false;
  for (; place != keys.data() + keys.size(); ++place) {
    const Row* row = find_row(*place);
    if (std::strcmp(row->base, base) != 0) break;
    if (row->proc_version > driver_version) break;  // Versions ascend.
    known = true;
    if (row->proc_version > cuda_version) break;
    (row->variant == StreamVariant::kPlain ? plain : per_thread) = row;
  }
  const Row* row = flags == kProcPerThreadStream && per_thread != nullptr ? per_thread : plain;
  if (row != nullptr) return {kSuccess, kFoundStatus, row};
  return {kNotFound, known ? kNewerStatus : kUnknownStatus, nullptr};
}

}  // namespace gpurun::driver_abi
