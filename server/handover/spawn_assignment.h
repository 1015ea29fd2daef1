// Assignment: the GPUs that a worker must serve and the main memory that it may have, sent before
// it opens its driver's devices. It depends on the lease. So it is not in the command line or the
// environment: a worker may start before there is a lease (docs/adr/0034).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::server {

// Bytes of the list of GPUs. The longest list of a server, with names of 41 characters, has two
// thirds of it.
inline constexpr std::size_t kVisibleBytesMax = std::size_t{64} << 10;

// The argument by which a spare worker can be recognised, and its replacement once the worker has a
// lease.
inline constexpr const char* kSpareWord = "--spare";
inline constexpr const char* kTakenWord = "--taken";

struct Assignment {
  std::uint64_t memory_bytes = 0;  // Memory of its own that the worker may have. 0: no limit.
  // A lease has the worker, so it is no longer a spare worker, even after a failure.
  bool leased = false;
  std::uint32_t gpus = 0;         // Their number. A driver that shows more has ignored `visible`.
  std::string visible;            // CUDA_VISIBLE_DEVICES.
  std::vector<UniqueFd> ledgers;  // Of emulated devices. Empty: each worker has its own.
};

// Uses the socket of the hand-over (spawn_hand_over.h), before it. Never waits.
Status send_assignment(int socket, const Assignment& assignment);
// kPeerGone: gpurund has ended, or does not want this worker. kProtocol: not an assignment.
Result<Assignment> receive_assignment(int socket);
// Sets the variables that drivers read at initialisation. The ledgers stay open.
void obey(Assignment& assignment);

}  // namespace gpurun::server
