// What a worker is told before it opens its driver's devices: which GPUs it is to serve, and how
// much main memory it may have. It depends on the lease, and so stands on no command line and in no
// environment: a worker may have been started before there was one (docs/adr/0034).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::server {

// Of the list of GPUs. A server's longest, of names of 41 characters, has two thirds of it.
inline constexpr std::size_t kVisibleBytesMax = std::size_t{64} << 10;

struct Assignment {
  std::uint64_t memory_bytes = 0;  // That the worker may have of its own; 0: any.
  // A lease has it: from now on it is no spare worker, whatever happens.
  bool leased = false;
  std::uint32_t gpus = 0;         // As many; a driver that shows more has not heeded `visible`.
  std::string visible;            // CUDA_VISIBLE_DEVICES.
  std::vector<UniqueFd> ledgers;  // Of emulated devices; empty: each worker has its own.
};

// Over the socket of the hand-over (spawn_hand_over.h), before it; never waits.
Status send_assignment(int socket, const Assignment& assignment);
// kPeerGone: gpurund has ended, or does not want this worker. kProtocol: it is none.
Result<Assignment> receive_assignment(int socket);
// Sets the variables that drivers read when they are initialised. The ledgers stay open.
void obey(Assignment& assignment);

}  // namespace gpurun::server
