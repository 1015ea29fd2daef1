// PTX selection: ranks the PTX entries of a fat binary.
#include "driver_abi/ptx_selection.h"

namespace gpurun::driver_abi {
namespace {

// Higher is better, 0 is unfit. The upper half holds the class, the lower the architecture.
std::uint64_t rank_of(const FatbinEntry& entry, const PtxSelection& selection) {
  if (entry.kind != FatbinKind::kPtx) return 0;
  const bool newer = entry.arch > selection.device_arch;
  const bool special = entry.arch_specific() || entry.family_specific();
  if (entry.arch_specific() && !selection.accept_arch_specific) return 0;
  if (entry.family_specific() && entry.arch / 10 != selection.family_major) return 0;
  if (newer && !special && !selection.accept_newer) return 0;
  const std::uint64_t klass = (special ? 0U : 2U) + (newer ? 0U : 1U) + 1U;
  const std::uint64_t within = newer ? 0xffffffffU - entry.arch : entry.arch;
  return (klass << 32) | within;
}

}  // namespace

std::optional<std::size_t> select_ptx(const std::vector<FatbinEntry>& entries,
                                      const PtxSelection& selection) {
  std::optional<std::size_t> best;
  std::uint64_t best_rank = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::uint64_t rank = rank_of(entries[i], selection);
    if (rank <= best_rank) continue;
    best_rank = rank;
    best = i;
  }
  return best;
}

}  // namespace gpurun::driver_abi
