// Model runtime: the threads that take turns, and each one's knowledge of the others. Not
// instrumented, and without thread_local variables of its own.
#pragma once

#include <time.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/clock.h"

namespace gpurun::model {

struct Fiber {
  int id = 0;
  const char* name = "";
  ucontext_t context;
  char* stack = nullptr;
  enum class State : std::uint8_t { kFree, kReady, kBlocked, kDone } state = State::kFree;
  std::function<bool()> ready;  // For kBlocked.
  const char* waits_for = "";
  bool timed = false;  // The wait may time out.
  bool timed_out = false;
  std::uint64_t rests_until = 0;  // In rest(): a number of steps. Otherwise 0.
  std::function<void*()> body;
  void* result = nullptr;
  Clock clock;
  Clock acquired;  // From relaxed loads, for a later fence.
  Clock released;  // At the last release fence.
  int inside = 0;
  std::vector<char> thread_locals;  // Its thread_local variables while another fiber runs.
  std::vector<const void*> calls;
};

struct World {
  Fiber fibers[kThreadsMax];
  int made = 0;
  Fiber* current = nullptr;  // nullptr: no scenario runs.
  int inside = 0;            // Above 0: the runtime or a stand-in runs.
  bool exploring = false;
  unsigned preemptions_left = 0;
  unsigned stale_left = 0;
  Clock fences;  // From seq_cst fences.
  std::uint64_t steps = 0;
  timespec now{1'000'000, 0};  // All clocks.
  // See let_expire() and compared().
  const char* expiring = nullptr;
  unsigned expiries_left = 0;
  std::vector<std::pair<std::uintptr_t, std::size_t>> compared;
  // The thread_local variables of the running fiber, at one place for all.
  std::uintptr_t locals_start = 0;
  std::size_t locals_bytes = 0;
};
extern World world;

// Whether the scenario's code runs now.
inline bool seen() { return world.current != nullptr && world.inside == 0; }
// Memory is followed only while there are choices. Everything earlier happens before all of it.
inline bool memory_seen() { return world.exploring && world.inside == 0; }

class Inside {
 public:
  Inside() { ++world.inside; }
  ~Inside() { --world.inside; }
};

// In explorer.cc. Returns the next choice, 0 to count - 1. Without a search it is 0. `rare`: random
// runs seldom choose another value.
unsigned next_choice(unsigned count, bool rare);

// In scheduler.cc.
void schedule_point();
// Waits until `ready`. Returns false after a timeout.
bool block(const std::function<bool()>& ready, const char* waits_for, bool timed = false);
Fiber* start_fiber(const char* name, std::function<void*()> body);
void run_world(const std::function<void()>& main);
void tick();

// In memory.cc.
void forget_memory();  // Called before each execution.
// Outside: an access by the kernel, which is done before its report arrives (Passage).
enum class Kind : std::uint8_t { kPlain, kAtomic, kOutside };
void note_access(const void* address, std::size_t bytes, bool write, Kind kind, const void* pc);
// Whether a read of a word here belongs to a comparison (compared()). Another thread may continue.
bool is_compared(const void* address);
// Newly given memory has no history. Freeing memory comes after all accesses to it.
void memory_given(const void* address, std::size_t bytes);
void memory_taken(const void* address, std::size_t bytes, const void* pc);

// In locks.cc.
void forget_locks();

// In report.cc. Notes a step of the current thread. `what` is a literal. `value` is arbitrary.
void trace(const char* what, const void* address, std::uint64_t value, const void* pc);
void forget_trace();

}  // namespace gpurun::model
