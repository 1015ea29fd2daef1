// What the calling thread takes while it is watched: memory of the heap, of anybody's code in this
// process, and the kernel's attention. For plain builds: a sanitizer has an allocator of its own.
#pragma once

namespace gpurun::testing {

struct Taken {
  unsigned allocations = 0;
  // System calls, where they can be seen (Linux 5.11 on x86-64); `seen` says so.
  bool seen = false;
  unsigned wakes = 0;  // Of other threads: futex, whether one slept or not.
  unsigned waits = 0;  // For other threads: futex. As who comes second to a lock does.
  unsigned other_calls = 0;
  long last_other = -1;  // Its number.
};

// Any thread, for itself; several at once.
void watch_this_thread();
Taken stop_watching();

}  // namespace gpurun::testing
