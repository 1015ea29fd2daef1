// Daemon: a listing's content. It has the GPUs, their leases, and what else the daemon holds.
#include <algorithm>

#include "server/daemon/daemon.h"

namespace gpurun::server {

protocol::Listing Daemon::listing() {
  protocol::Listing listing;
  listing.release = protocol::kRelease;
  listing.confinement = options_.confinement;
  listing.waiting = static_cast<std::uint32_t>(queue_.waiting());
  listing.gpus.resize(options_.devices);
  for (std::size_t i = 0; i < options_.device_facts.size() && i < listing.gpus.size(); ++i) {
    protocol::ListedGpu& gpu = listing.gpus[i];
    gpu.name = options_.device_facts[i].name;
    gpu.memory_bytes = options_.device_facts[i].memory_bytes;
    if (options_.ledgers == nullptr) continue;
    gpu.used_bytes = options_.ledgers->used_bytes(static_cast<int>(i), gpu.memory_bytes);
  }
  listing.gathering = static_cast<std::uint32_t>(book_.gathering());
  listing.half_open = static_cast<std::uint32_t>(half_open());
  listing.spare_workers = static_cast<std::uint32_t>(workers_.spare_count());
  list_leases(&listing);
  return listing;
}

void Daemon::list_leases(protocol::Listing* listing) {
  const std::vector<HeldLease> held = book_.held();
  listing->leases = static_cast<std::uint32_t>(held.size());
  std::vector<protocol::ListedGpu> entries;
  listing->workers = lease_links_.list(held, &entries);
  std::uint32_t number = 0;
  for (const HeldLease& lease : held) {
    protocol::ListedGpu& about = entries[number];
    about.user = lease.user;
    about.held_seconds = static_cast<std::uint64_t>(lease.held.count());
    about.lease = ++number;
    for (const int device : lease.devices) {
      protocol::ListedGpu& gpu = listing->gpus[static_cast<std::size_t>(device)];
      about.name = gpu.name;
      about.memory_bytes = gpu.memory_bytes;
      about.used_bytes = gpu.used_bytes;
      gpu = about;
    }
  }
}

}  // namespace gpurun::server
