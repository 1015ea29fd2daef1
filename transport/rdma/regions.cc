// Regions: no call of verbs runs with the lock held, because registration takes long.
#include "transport/rdma/regions.h"

#include <algorithm>
#include <cerrno>

#include "transport/rdma/library.h"
#include "transport/rdma/memory.h"

namespace gpurun::transport::rdma {

Result<RegionKeys> Regions::add(ibv_pd* pd, std::byte* start, std::size_t bytes, int access) {
  ibv_mr* const region = ibv_reg_mr(pd, start, bytes, access);
  if (region == nullptr) return registration_refused(bytes, errno);
  return keep(region);
}

Result<RegionKeys> Regions::add_device(ibv_pd* pd, const RemoteMemory::DeviceMemory& memory) {
  if (memory.dma_buf < 0) {
    return add(pd, reinterpret_cast<std::byte*>(memory.address), memory.bytes,
               IBV_ACCESS_LOCAL_WRITE);
  }
  ibv_mr* const region =
      register_dma_buf(pd, 0, memory.bytes, memory.address, memory.dma_buf, IBV_ACCESS_LOCAL_WRITE);
  if (region != nullptr) return keep(region);
  if (errno == ENOSYS) {
    return Status(Code::kResourceExhausted, library_file() + " has no ibv_reg_dmabuf_mr");
  }
  return registration_refused(memory.bytes, errno);
}

RegionKeys Regions::keep(ibv_mr* region) {
  const std::lock_guard<std::mutex> lock(mutex_);
  regions_.emplace(region->lkey, region);
  return RegionKeys{region->lkey, region->rkey};
}

template <typename Matches>
bool Regions::remove(Matches matches) noexcept {
  ibv_mr* region = nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(regions_.begin(), regions_.end(), matches);
    if (found == regions_.end()) return true;
    region = found->second;
    regions_.erase(found);
  }
  return ibv_dereg_mr(region) == 0;
}

bool Regions::remove_local(std::uint32_t local) noexcept {
  return remove([local](const auto& each) { return each.first == local; });
}

void Regions::remove_remote(std::uint32_t remote) noexcept {
  static_cast<void>(remove([remote](const auto& each) { return each.second->rkey == remote; }));
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
