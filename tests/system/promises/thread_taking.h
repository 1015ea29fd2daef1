// Thread taking: the resources that the calling thread takes while it is watched. These are heap
// memory, by any code in this process, and system calls. For plain builds only, because a sanitizer
// has its own allocator.
#pragma once

namespace gpurun::testing {

struct Taken {
  unsigned allocations = 0;
  // System calls, where they can be seen (Linux 5.11 on x86-64). `seen` is true there.
  bool seen = false;
  unsigned wakes = 0;  // Wake-ups of other threads by futex, whether one slept or not.
  unsigned waits = 0;  // Waits for other threads by futex, as for a contended lock.
  unsigned other_calls = 0;
  long last_other = -1;  // The number of the last other system call.
};

// Any thread calls these for itself. Several threads may be watched at once.
void watch_this_thread();
Taken stop_watching();

}  // namespace gpurun::testing
