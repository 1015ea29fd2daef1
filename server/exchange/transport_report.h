// TransportReport: what a session's connections use and where its worker runs, as the worker
// reports it to the daemon.
//
// A stranger's program may have written it, so the daemon believes none of it beyond its bounds. It
// serves listings and the audit log alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "base/printable.h"

namespace gpurun::server {

struct TransportReport {
  std::uint32_t connections = 0;  // With which the session began.
  std::uint32_t over_rdma = 0;    // Those that use RDMA now.
  std::uint32_t left_rdma = 0;    // Those that used it before.
  std::int32_t numa_node = -1;    // On which the worker runs. -1: it may run everywhere.
  std::array<char, 188> ports{};  // "mlx5_0:1 to mlx5_1:1", and more with commas between.
  std::array<char, 188> why_left{};
};
static_assert(std::is_trivially_copyable_v<TransportReport> && sizeof(TransportReport) == 392);

template <std::size_t kSize>
void put_text(const std::string& from, std::array<char, kSize>* into) {
  *into = {};
  std::copy_n(from.begin(), std::min(from.size(), kSize), into->begin());
}

// Safe for a terminal.
template <std::size_t kSize>
std::string text_of(const std::array<char, kSize>& from) {
  return printable(std::string(from.begin(), std::find(from.begin(), from.end(), '\0')));
}

}  // namespace gpurun::server
