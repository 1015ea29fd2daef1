// HostArena: pinned and managed host memory that the device reaches at the same address
// (client/host_memory/arena_blocks.h).
//
// A worker of the same machine maps this memory (docs/adr/0040). Another worker has a copy, and the
// session exchanges what changes (docs/adr/0042). Where the arena is missing or full, pinned memory
// is ordinary memory of this process. GPURUN_HOST_MEMORY chooses (call/host_memory_choice.h). The
// state is immortal. Any thread. Locks are short, and none is held across a call.
#pragma once

#include <cstdint>
#include <optional>

#include "client/interpose/call/forward.h"
#include "client/interpose/memory/memory_ranges.h"

namespace gpurun::client::interpose {

// False: this process has no arena, and its devices cannot map host memory. True: an allocation may
// still find no room.
bool may_have_host_arena(const Process& process) noexcept;
// What uses an allocation.
enum class Use : std::uint8_t {
  kByCopies,  // A worker elsewhere gets no copy of it before let_device_reach().
  kByDevice,
};
// Of pinned memory with these flags of cuMemHostAlloc.
Use use_of_pinned_memory(const Process& process, unsigned flags) noexcept;

// Allocates memory for the current context. `code` names the call for errors and statistics: it is
// one of those that protocol/calls/host_arena.h names. The memory is zeros, or that of an
// allocation that this process has freed. 0: no room, or no arena. `*earlier`: 0, or the failure of
// an earlier call that became known meanwhile. The call returns it although it has done its own
// work.
std::uint64_t allocate_in_arena(const EntryContext& here, std::uint16_t code, std::uint64_t bytes,
                                Use use, int* earlier);

// The device is to reach `range` of pinned or registered memory. Returns 0 if it does from now on,
// or did before: registered memory at MemoryRange::view. NOT_SUPPORTED: it cannot. Otherwise the
// result of the worker, or the failure of an earlier call.
int let_device_reach(const EntryContext& here, const MemoryRange& range);
// The range that contains `address`, as find_range() returns it. A call uses the address as one of
// the device. So pinned memory is reached from now on, if it can be.
std::optional<MemoryRange> find_device_range(const EntryContext& here, std::uint64_t address);

// The registration ends, and nothing uses the memory any more. Ends its view, if it has one.
// Returns 0, or the failure of an earlier call.
int end_view(const EntryContext& here, const MemoryRange& range);

// Ends what allocate_in_arena() returned. Nothing uses the memory any more. Returns 0, or the
// failure of an earlier call.
int free_in_arena(const EntryContext& here, const MemoryRange& range);

// The context has ended in the worker, or will end after the work that was posted before. Its
// memory in the arena ends with it. `ranges`: how many allocations it still had. `used`: this
// process is still to read or write some of them, so that they stay mapped.
void end_arena_of_context(const EntryContext& here, Handle context, std::size_t ranges, bool used);

}  // namespace gpurun::client::interpose
