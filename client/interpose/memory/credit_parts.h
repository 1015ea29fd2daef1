// Credit parts: the units in which a grant of device memory is returned (docs/adr/0005).
#pragma once

#include <algorithm>
#include <cstdint>

#include "protocol/calls/device_memory.h"

namespace gpurun::client::interpose {

inline constexpr std::uint64_t kAddressUnit = std::uint64_t{2} << 20;

// `visit` returns whether to go on. Returns false if a visit stopped the iteration.
template <typename Visit>
bool for_each_part(const protocol::CreditGrant& grant, Visit visit) {
  const std::uint64_t end = grant.piece + grant.piece_bytes;
  const std::uint64_t part = grant.part_bytes < kAddressUnit ? grant.piece_bytes : grant.part_bytes;
  for (std::uint64_t at = grant.piece; at < end; at += std::min(part, end - at)) {
    if (!visit(at, std::min(part, end - at))) return false;
  }
  return true;
}

}  // namespace gpurun::client::interpose
