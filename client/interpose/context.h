// Context: what the client keeps of one CUDA context. The object of every kContext handle.
//
// Contexts are never freed but used again, so that a thread which looks at one that another thread
// destroys reads stale facts and nothing worse.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/handles.h"

namespace gpurun::client::interpose {

struct Context {
  Handle handle = 0;
  int ordinal = 0;         // The program's.
  int server_ordinal = 0;  // The worker's.
  bool primary = false;
  std::uint64_t id = 0;  // cuCtxGetId: never given twice.
  // A primary context is alive from its first use as a handle, but active only while retained.
  std::atomic<bool> active{false};
  std::atomic<unsigned> flags{0};
  std::atomic<int> usage{1};       // cuCtxAttach, cuCtxDetach.
  Context* next_unused = nullptr;  // While it is no context at all.
};

// A context ends, and with it the object of one of its handles. Each kind that has objects names
// its own function here (context_objects.cc).
void end_object(HandleKind kind, void* object) noexcept;

}  // namespace gpurun::client::interpose
