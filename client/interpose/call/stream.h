// Stream: what the client keeps of one stream. It is the object of every kStream handle.
#pragma once

#include <cstdint>

#include "client/interpose/call/forward.h"

namespace gpurun::client::interpose {

struct Stream {
  unsigned flags = 0;
  int priority = 0;
  std::uint64_t id = 0;
  Stream* next_unused = nullptr;
};

// nullptr for 0, 1, 2 and for a value that is not a stream.
Stream* find_stream(const EntryContext& here, Handle stream) noexcept;
// The context of a stream argument of this call. For 0, 1 and 2 it is the current context.
Handle context_of_stream(const EntryContext& here, Handle stream) noexcept;

// Blocks until the stream's work is done and every byte of its copies has arrived.
int synchronize_stream(const EntryContext& here, Handle stream);

}  // namespace gpurun::client::interpose
