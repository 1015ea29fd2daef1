// HostArena: pinned host memory of this process that the worker maps at the same address, so that
// the device reaches it (docs/adr/0040, client/host_memory/arena_blocks.h).
//
// It exists only with a worker of the same machine that shares memory with this process. Where it
// is missing or full, pinned memory is ordinary memory of this process. GPURUN_HOST_MEMORY=copy
// turns it off. The state is immortal. Any thread. Locks are short, and none is held across a call.
#pragma once

#include <cstdint>

#include "client/interpose/call/forward.h"

namespace gpurun::client::interpose {

// False: this process has no arena, and its devices cannot map host memory. True: an allocation may
// still find no room.
bool may_have_host_arena(const Process& process) noexcept;

// Allocates memory for the current context. `code` names the call for errors and statistics: it is
// one of those that protocol::HostBlockKind::kMap names. The memory is zeros, or that of an
// allocation that this process has freed. 0: no room, or no arena. `*earlier`: 0, or the failure of
// an earlier call that became known meanwhile. The call returns it although it has done its own
// work.
std::uint64_t allocate_in_arena(const EntryContext& here, std::uint16_t code, std::uint64_t bytes,
                                int* earlier);

// Ends what allocate_in_arena() returned. Nothing uses the memory any more. Returns 0, or the
// failure of an earlier call.
int free_in_arena(const EntryContext& here, std::uint64_t address);

// The context has ended in the worker, or will end after the work that was posted before. Its
// memory in the arena ends with it. `ranges`: how many allocations it still had. `used`: this
// process is still to read or write some of them, so that they stay mapped.
void end_arena_of_context(const EntryContext& here, Handle context, std::size_t ranges, bool used);

}  // namespace gpurun::client::interpose
