// Model: a deterministic scheduler for the real code, with the functions that a scenario (one small
// program of some threads) may use. The sources under test are compiled unchanged with
// -fsanitize=thread, but linked with this runtime in place of ThreadSanitizer's. Every atomic
// operation and every plain access therefore comes here. Mutexes, conditions, futexes and threads
// come here by the names of the C library. One thread runs at a time. At each such operation the
// explorer decides which thread continues.
//
// The model finds, for the scenario and within the bounds that are printed:
// - Every interleaving of the synchronising operations with a bounded number of preemptions.
// - Memory orders that are too weak, as far as loads of older values show it. A load may see any
//   store that happens-before, coherence and the order of seq_cst operations do not rule out. The
//   number of such loads per execution is bounded. That models a store buffer, or a late
//   invalidation.
// - Data races of plain memory (happens-before, by vector clocks), at the operation that races.
// - Deadlocks and lost wake-ups: no thread can continue, and some thread has not ended.
// - Whatever the scenario checks itself.
// The model does not find:
// - Loads of values that are stored later (load buffering).
// - Stores that enter a location's order before older ones.
// - Failures of compare_exchange that read old values or are spurious.
// - Spurious wake-ups of conditions.
// - Accesses by code that is not instrumented (the C++ library's own objects, the kernel).
// - Orders within one system call.
// - Effects of time: a wait reaches its deadline only when no other thread can continue, or as
//   let_expire() allows.
// ThreadSanitizer builds run the whole product, and see the first of these only as races.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/model/clock.h"

namespace gpurun::model {

// Functions for use within a scenario.

// Starts a thread. `name` is a literal. All threads must be joined when the scenario returns.
int spawn(const char* name, std::function<void()> body);
void join(int thread);
// Forgets the threads that have ended, so that a scenario may begin anew. Only the first thread may
// be left.
void begin_anew();
// Waits until `ready` returns true. Any running thread may call `ready` at any time.
void until(const std::function<bool()>& ready, const char* what);
// Waits until every other thread waits or has ended.
void settle();
// Another thread may continue here.
void point();
// Other threads take `steps` steps first, or as many as they can before all of them wait.
void rest(std::uint64_t steps);
// Returns one of 0 to `count` - 1. All are tried.
unsigned choose(unsigned count);
// Whether this execution makes random choices.
bool random_phase();
// Turns the choices on or off from here. A scenario starts without them.
void exploring(bool on);
// Reports that the thread reads or writes memory that uninstrumented code (a stand-in for the
// kernel) uses.
void reads(const void* from, std::size_t bytes);
void writes(void* to, std::size_t bytes);
// Memory that code compares in words of 8 bytes while others write to it. Such a read is no race.
// Another thread may continue before the first word of each 32 bytes.
void compared(const void* memory, std::size_t bytes);
// Waits of the thread `name` (a literal) may reach their deadline at any time, `count` times.
void let_expire(const char* name, unsigned count);
// A path through the outside world: in() comes before the matching out().
class Passage {
 public:
  void in();
  void out();

 private:
  Clock clock_;
};
// Hides the scenario's own bookkeeping, which is not part of the run.
class Quiet {
 public:
  Quiet();
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};
// Prints the violation and the steps that led to it, and ends the whole run.
[[noreturn]] void violated(const std::string& what);
inline void check(bool holds, const char* what) {
  if (!holds) violated(what);
}

// Functions for the program.

struct Scenario {
  const char* name;
  void (*run)();
};

// Explores each scenario. Runs whole searches with ever more preemptions and loads of old values,
// until `executions` are done (or GPURUN_MODEL_EXECUTIONS). Then runs as many at random (with
// GPURUN_MODEL_SEED, or any seed, which is printed). Returns the exit status. Arguments are the
// names of scenarios, or none for all. With `--finds TEXT` a violation must be found that contains
// TEXT (or one of several texts with bars between).
int explore(int argc, char** argv, const Scenario* scenarios, std::size_t count,
            std::uint64_t executions);

}  // namespace gpurun::model
