// HostArena: host memory at the client's addresses, which this process maps and registers with the
// driver, so that the device reaches it. It is the client's own (docs/adr/0040), or a copy that
// HostMirror keeps like the client's (docs/adr/0042). See protocol/calls/host_arena.h.
//
// The client is untrusted. It can write to its own memory at any time, and it chooses addresses and
// sizes. So this process reserves the place of all blocks before the first one, without access, and
// never gives it up: no other memory of the process ever lies at an address that the driver was
// given. The file must be sealed, because an access behind its end would kill this process. What a
// session can make the machine pin is bounded by kHostBlocksMax and by half of the machine's
// memory. A copy counts twice, because it has a twin.
//
// Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "base/status.h"
#include "base/unique_fd.h"
#include "protocol/calls/host_arena.h"
#include "server/driver/cuda_driver.h"
#include "server/handlers/memory/host_mirror.h"
#include "server/worker/execution/call.h"
#include "server/worker/execution/host_memory.h"

namespace gpurun::server {

class HostArena {
 public:
  explicit HostArena(const CudaDriver& driver);
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  // Takes the client's sealed memory file. kInvalidArgument: it is not one of
  // limits::kHostArenaBytes, or there is one already.
  Status adopt(UniqueFd file);

  // With the context of the call current. May block in the driver. Return the call's CUresult.
  int map(const protocol::HostBlock& block, std::uint64_t context);
  int unmap(const protocol::HostBlock& block, std::uint64_t context);
  // Takes what the client has written to blocks of kMirror. Returns the call's CUresult.
  int write(ByteView pieces);

  // The client's context has ended in the driver, and its registrations with it.
  void context_ended(std::uint64_t context);

  const HostMemory& memory() const { return memory_; }
  HostMirror& mirror() { return mirror_; }

 private:
  struct Block {
    std::uint64_t bytes = 0;
    std::uint64_t context = 0;
    bool busy = false;       // A thread maps or unmaps it.
    std::uint64_t cost = 0;  // What bytes_ counts for it.
  };
  // Needs the mutex. Returns 0 or the call's CUresult.
  int reserve_place(const protocol::HostBlock& block);
  int claim(const protocol::HostBlock& block, std::uint64_t context);
  void drop(std::uint64_t address);

  const CudaDriver& driver_;
  const std::uint64_t bytes_max_;
  std::mutex mutex_;  // Guards all below, except memory_ and mirror_.
  UniqueFd file_;
  std::uint64_t base_ = 0;  // Of the place. 0: none is reserved yet.
  std::uint64_t span_ = 0;
  std::map<std::uint64_t, Block> blocks_;  // By address.
  std::uint64_t bytes_ = 0;
  HostMemory memory_;
  HostMirror mirror_;
};

void add_host_arena_handlers(Handlers& handlers);

}  // namespace gpurun::server
