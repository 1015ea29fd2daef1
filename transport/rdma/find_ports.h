// find_ports(): the ports of this machine, and the one that reaches a peer.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "transport/rdma/allowed_ports.h"
#include "transport/rdma/port.h"

namespace gpurun::transport::rdma {

// Opens the devices of the allowed ports, and returns the active ports that pass the probe. Their
// descriptors are in `place`.
// `local`, unless nullptr: only ports that choose_port() takes for it. Every port that is left out
// is added to `rejected`.
//   kUnavailable  no port can be used. The message names the first reason.
Result<std::vector<Port>> find_ports(const AllowedPorts& allowed, std::vector<Rejected>* rejected,
                                     const NearTo& near = {}, const Gid* local = nullptr,
                                     const DescriptorPlace& place = {});

// The GIDs of a port. `count`: the length of its table.
std::vector<PortGid> gids_of(ibv_context* context, std::uint8_t port, int count);

// Chooses the port and the GID for a peer that is reached from `local`, as Fabric::make_end().
// `link`: the other end's, or nullptr. `rail`: which of the ports that lead there. Behind the last
// one the first one follows.
//   kUnavailable  no port has a GID for it.
Result<Port> choose_port(const std::vector<Port>& ports, const Gid& local, const Link* link,
                         std::size_t rail = 0);

// Whether the port is in the partition of the offer, and in its subnet if that is one of
// InfiniBand.
bool same_fabric(const Port& port, const Offer& theirs);

}  // namespace gpurun::transport::rdma
