// Handle form: the 64 bits of a client-minted handle are tag (8), kind (6), generation (28), index
// (22). The client mints handles in this form, and the worker refuses other values.
#pragma once

#include <cstdint>

#include "driver_abi/row.h"
#include "protocol/limits.h"

namespace gpurun::protocol {

inline constexpr std::uint64_t kHandleTag = 0x5D;  // No x86-64 or AArch64 address starts with it.
inline constexpr int kHandleTagShift = 56;
inline constexpr int kHandleKindShift = 50;
inline constexpr int kHandleGenerationShift = 22;
inline constexpr std::uint64_t kHandleKindMask = 0x3F;
inline constexpr std::uint32_t kHandleGenerationMask = (1u << 28) - 1;
inline constexpr std::uint64_t kHandleIndexMask = (std::uint64_t{1} << kHandleGenerationShift) - 1;
static_assert(limits::kHandlesMax == kHandleIndexMask + 1);

// The kind that `handle` claims, or kNone when it does not have the form. The handle may still be
// dead.
constexpr driver_abi::HandleKind claimed_handle_kind(std::uint64_t handle) noexcept {
  if (handle >> kHandleTagShift != kHandleTag) return driver_abi::HandleKind::kNone;
  const std::uint64_t kind = handle >> kHandleKindShift & kHandleKindMask;
  if (kind > static_cast<std::uint64_t>(driver_abi::HandleKind::kGraphConditional)) {
    return driver_abi::HandleKind::kNone;
  }
  return static_cast<driver_abi::HandleKind>(kind);
}

}  // namespace gpurun::protocol
