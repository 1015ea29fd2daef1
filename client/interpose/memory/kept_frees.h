// Kept frees: frees of a device's own pool that are not posted yet (docs/adr/0057).
//
// cuMemFreeAsync keeps such memory with its stream. A later cuMemAllocAsync of just that size in
// that stream takes it, and neither call sends anything. Each call that could show the difference
// posts the kept frees first. Only work on streams and local answers leave them kept.
//
// Rules for a change here:
// - The driver never has more of a pool in use than the program itself once had. The client does
//   not know whether a driver counts bytes or units, so both must fit.
// - A program knows that a free is done from a wait. If the worker has reported that wait's end,
//   the free needs no place in its stream. Otherwise the free is posted before the wait.
// - A free counts as kept until its record is in the log. So a thread that finds none kept is
//   behind all of them. The lock is therefore held around these appends.
// - A free that is not kept is posted in its place.
// - Late frees must not change the implicit order of streams (implicit_order.h). Legacy work comes
//   behind the frees of blocking streams. The legacy stream keeps none beside blocking streams.
//
// The state is immortal. Any thread. In a forked child nothing is posted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client/interpose/call/forward.h"
#include "client/interpose/memory/memory_ranges.h"
#include "driver_abi/row.h"

namespace gpurun::client::interpose {

// Beyond these the oldest frees are posted. A free of more bytes is never kept.
inline constexpr std::size_t kKeptFreesMax = 256;
inline constexpr std::uint64_t kKeptBytesMax = std::uint64_t{1} << 30;

// Only kept_frees.cc writes it.
inline constinit std::atomic<std::size_t> g_kept_frees{0};

// Costs one load. A thread that knows of another thread's free has synchronised with that thread,
// so it sees the count.
inline bool kept_frees_exist() noexcept {
  return g_kept_frees.load(std::memory_order_relaxed) != 0;
}

// Posts a free of a pool's memory, which no work uses any more, so far as the program knows. It
// takes no place in a stream: cuMemFree waits for no work then (cuda.h, cuMemFree).
int free_pool_memory(const EntryContext& here, Handle context, CUdeviceptr address);

// The program calls `row`. Posts the kept frees that the call could show.
void post_kept_frees_before(const driver_abi::Row& row);
// Posts all kept frees. Also call it before a call that may show how far a stream has got without a
// report of the worker.
void post_kept_frees(const EntryContext& here);

// The program frees `range`, which remove_range() returned, in `stream`. Returns true if the free
// is kept. Returns false if the caller must send it now.
bool keep_free(const EntryContext& here, Handle stream, const MemoryRange& range);
// The program allocates from its device's own pool in `stream`. Returns true if `*address` is
// memory of a kept free, which is no longer kept. Returns false if the caller must ask the driver,
// and then call count_allocation(). Kept frees that would raise the pool's high mark are posted.
bool take_kept_free(const EntryContext& here, Handle stream, std::uint64_t bytes,
                    CUdeviceptr* address);
void count_allocation(const EntryContext& here, std::uint64_t bytes, bool made);
// A call names device memory at `address`. If the client knows none, it may be freed memory, and
// the driver judges the address. Returns when the kept frees have taken place.
void settle_unknown(const EntryContext& here, std::uint64_t address);
// Memory of a pool ends by another call than cuMemFreeAsync.
void count_end_of_pool_memory(const MemoryRange& range);

// From now on this process keeps no free. A call makes the accounts of a pool unknown.
void stop_keeping_frees(const EntryContext& here);
// The program sets an attribute of `pool`. A pool keeps its frees across waits while its release
// threshold lets it hold on to all its memory.
void note_pool_attribute(const EntryContext& here, Handle pool, std::uint32_t attribute,
                         std::uint64_t value);

}  // namespace gpurun::client::interpose
