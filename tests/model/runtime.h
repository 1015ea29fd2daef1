// The inside of the model's runtime: threads that take turns, and what each knows of the others.
// Not instrumented, no thread_local of its own.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/model/clock.h"

namespace gpurun::model {

struct Fiber {
  int id = 0;
  const char* name = "";
  ucontext_t context;
  char* stack = nullptr;
  enum class State : std::uint8_t { kFree, kReady, kBlocked, kDone } state = State::kFree;
  std::function<bool()> ready;  // kBlocked.
  const char* waits_for = "";
  bool timed = false;  // It may stop to wait.
  bool timed_out = false;
  std::function<void*()> body;
  void* result = nullptr;
  Clock clock;
  Clock acquired;  // Of relaxed loads, for a later fence.
  Clock released;  // At the last release fence.
  int inside = 0;
  std::vector<char> thread_locals;  // Its thread_local variables while another runs.
  std::vector<const void*> calls;
};

struct World {
  Fiber fibers[kThreadsMax];
  int made = 0;
  Fiber* current = nullptr;  // nullptr: no scenario runs.
  int inside = 0;            // Over 0: the runtime or a stand-in runs.
  bool exploring = false;
  unsigned preemptions_left = 0;
  unsigned stale_left = 0;
  Clock fences;  // Of seq_cst fences.
  std::uint64_t steps = 0;
  // The thread_local variables of who runs: at one place for all.
  std::uintptr_t locals_start = 0;
  std::size_t locals_bytes = 0;
};
extern World world;

// Whether what happens now is the scenario's.
inline bool seen() { return world.current != nullptr && world.inside == 0; }
// Of memory only what happens while there are choices: what comes before happens before it all.
inline bool memory_seen() { return world.exploring && world.inside == 0; }

class Inside {
 public:
  Inside() { ++world.inside; }
  ~Inside() { --world.inside; }
};

// explorer.cc. The next choice, 0 to count - 1; 0 is what happens without a search. `rare`: at
// random not often.
unsigned next_choice(unsigned count, bool rare);

// scheduler.cc
void schedule_point();
// Waits until `ready`; false: timed out.
bool block(const std::function<bool()>& ready, const char* waits_for, bool timed = false);
Fiber* start_fiber(const char* name, std::function<void*()> body);
void run_world(const std::function<void()>& main);
void tick();

// memory.cc
void forget_memory();  // All, before an execution.
// Outside: by the kernel, which is done before what it says of it comes out (Passage).
enum class Kind : std::uint8_t { kPlain, kAtomic, kOutside };
void note_access(const void* address, std::size_t bytes, bool write, Kind kind, const void* pc);
// Memory that is given again has no history; it is taken back after all accesses.
void memory_given(const void* address, std::size_t bytes);
void memory_taken(const void* address, std::size_t bytes, const void* pc);

// locks.cc
void forget_locks();

// report.cc. What the threads did last; `what` is a literal, `value` at wish.
void trace(const char* what, const void* address, std::uint64_t value, const void* pc);
void forget_trace();

}  // namespace gpurun::model
