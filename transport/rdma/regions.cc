// Regions: no call of verbs runs with the lock held, because registration takes long.
#include "transport/rdma/regions.h"

#include <algorithm>
#include <cerrno>

#include "transport/rdma/memory.h"

namespace gpurun::transport::rdma {

Result<RegionKeys> Regions::add(ibv_pd* pd, std::byte* start, std::size_t bytes, int access) {
  ibv_mr* const region = ibv_reg_mr(pd, start, bytes, access);
  if (region == nullptr) return registration_refused(bytes, errno);
  const std::lock_guard<std::mutex> lock(mutex_);
  regions_.emplace(region->lkey, region);
  return RegionKeys{region->lkey, region->rkey};
}

template <typename Matches>
void Regions::remove(Matches matches) noexcept {
  ibv_mr* region = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(regions_.begin(), regions_.end(), matches);
    if (found == regions_.end()) return;
    region = found->second;
    regions_.erase(found);
  }
  ibv_dereg_mr(region);
}

void Regions::remove_local(std::uint32_t local) noexcept {
  remove([local](const auto& each) { return each.first == local; });
}

void Regions::remove_remote(std::uint32_t remote) noexcept {
  remove([remote](const auto& each) { return each.second->rkey == remote; });
}

void Regions::clear() noexcept {
  std::map<std::uint32_t, ibv_mr*> regions;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    regions.swap(regions_);
  }
  for (const auto& [local, region] : regions) ibv_dereg_mr(region);
}

}  // namespace gpurun::transport::rdma
