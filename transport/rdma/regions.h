// Regions: memory of this process that is registered with a protection domain beside the rings.
//
// The owner ends a region before its memory ends. Any thread.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "base/result.h"
#include "transport/remote_memory.h"

namespace gpurun::transport::rdma {

struct RegionKeys {
  std::uint32_t local = 0;   // Also names the region.
  std::uint32_t remote = 0;  // For the other end.
};

class Regions {
 public:
  Regions() = default;
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;
  ~Regions() { clear(); }

  // `access`: as for ibv_reg_mr(3). Blocks while the kernel locks the pages.
  //   kResourceExhausted  the device refuses it. When a limit of locked memory is the reason, the
  //                       message says how to raise it.
  Result<RegionKeys> add(ibv_pd* pd, std::byte* start, std::size_t bytes, int access);
  // Memory of a device that it writes, at its addresses. Errors as add().
  Result<RegionKeys> add_device(ibv_pd* pd, const RemoteMemory::DeviceMemory& memory);
  // False: the device has not given it up.
  bool remove_local(std::uint32_t local) noexcept;
  void remove_remote(std::uint32_t remote) noexcept;
  // Before its protection domain ends.
  void clear() noexcept;

 private:
  RegionKeys keep(ibv_mr* region);
  template <typename Matches>
  bool remove(Matches matches) noexcept;

  std::mutex mutex_;
  std::map<std::uint32_t, ibv_mr*> regions_;  // By the local key. Guarded by mutex_.
};

}  // namespace gpurun::transport::rdma
