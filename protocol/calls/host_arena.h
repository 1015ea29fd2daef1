// Host arena: the message of client and worker about blocks of host memory that the device reaches.
// It is the payload of form kRaw of cuMemHostAlloc, cuMemAllocHost and cuMemAllocManaged (kMap,
// kMirror), and of cuMemFreeHost (kUnmap).
//
// kMap: a block is a range of the client's memory file, which both map (docs/adr/0040). Only with
// Feature::kHostArena, and only after the client has offered the file over a connection of its own
// (transport/shm/memory.h). kMirror: client and worker each have memory of their own there, and
// host_mirror.h brings changes from one to the other (docs/adr/0042). Only with
// Feature::kHostMirror.
//
// The block has the same address in both, and the worker registers it with the driver. So the
// device reaches it at the address that the program has. All blocks of a session lie in one place:
// the address is the place's base and the offset. The worker holds the addresses of the place to
// its end, so that nothing else ever lies there.
#pragma once

#include <cstdint>

#include "protocol/limits.h"

namespace gpurun::protocol {

inline constexpr std::uint64_t kHostPageBytes = 4096;

enum class HostBlockKind : std::uint32_t {
  // Maps and registers the block in the record's context. A fence of Order::kContext with
  // kFlagPassesStreams. An error leaves nothing mapped. INVALID_VALUE: the worker has no file, or
  // the block does not lie in it, or in another place than the first. ALREADY_MAPPED: addresses of
  // the place are in use in the worker, which may then be asked for another place. OUT_OF_MEMORY:
  // over a bound of the worker. Other errors are the driver's.
  kMap = 1,
  // Ends what kMap or kMirror did for the same block in the same context. A fence of
  // Order::kOrderedHost with
  // kFlagPassesStreams, so that the addresses are free when it returns. The program has waited for
  // all work that uses it.
  kUnmap = 2,
  // As kMap, with memory of the worker, which is zeros. The client's is zeros, too.
  kMirror = 3,
};

struct HostBlock {
  HostBlockKind kind = HostBlockKind::kMap;
  std::uint32_t reserved = 0;
  std::uint64_t address = 0;  // The four are multiples of kHostPageBytes.
  std::uint64_t offset = 0;   // From the place's base. kMap: and in the file.
  std::uint64_t bytes = 0;    // 1 page to limits::kHostBlockBytesMax.
  std::uint64_t span = 0;     // Of the place: 1 page to limits::kHostArenaBytes.
};
static_assert(sizeof(HostBlock) == 40);

}  // namespace gpurun::protocol
