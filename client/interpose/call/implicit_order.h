// Implicit order: the legacy stream and the blocking streams of a context wait for each other. The
// calls do not name this order, and a call that is posted late has another place in it.
//
// Frees that are kept (memory/kept_frees.h) are such calls. That folder is above this one, so it
// counts them here, and sets a callback that posts them. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "client/interpose/call/forward.h"

namespace gpurun::client::interpose {

// The frees that are kept in created blocking streams. Later legacy work must be behind them. Only
// kept_frees.cc writes it.
inline constinit std::atomic<std::size_t> g_kept_in_blocking_streams{0};

enum class BlockingStreams : std::uint8_t {
  kNone,   // This process uses no blocking stream, and has used none.
  kBegin,  // The first use begins. The callback has not returned.
  kExist,
};
inline constinit std::atomic<BlockingStreams> g_blocking_streams{BlockingStreams::kNone};

enum class KeptIn : std::uint8_t { kLegacyStream, kBlockingStreams };
// Posts the frees that are kept there.
using PostKept = void (*)(const EntryContext&, KeptIn);
// Set it before the first free is kept.
void set_post_kept(PostKept post) noexcept;

// The program is about to create a blocking stream, or to use a per-thread stream. The first time,
// the frees of the legacy stream are posted. None is kept there afterwards.
void before_blocking_stream(const EntryContext& here);
// The program is about to use `stream`, which it has not created: 0, 1 or 2.
void before_default_stream(const EntryContext& here, Handle stream);

}  // namespace gpurun::client::interpose
