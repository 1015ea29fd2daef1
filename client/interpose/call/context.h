// Context: what the client keeps of one CUDA context. It is the object of every kContext handle.
//
// Contexts are reused, never freed. A thread that reads a context while another thread destroys it
// reads stale facts, but no freed memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/log/handles.h"

namespace gpurun::client::interpose {

struct Context {
  Handle handle = 0;
  int ordinal = 0;         // By the program's numbering.
  int server_ordinal = 0;  // By the worker's numbering.
  bool primary = false;
  std::uint64_t id = 0;  // cuCtxGetId. Never given twice.
  // A primary context is alive from its first use as a handle, but active only while it is
  // retained.
  std::atomic<bool> active{false};
  std::atomic<unsigned> flags{0};
  std::atomic<int> usage{1};       // cuCtxAttach, cuCtxDetach.
  Context* next_unused = nullptr;  // In the pool, while this object is unused.
};

}  // namespace gpurun::client::interpose
