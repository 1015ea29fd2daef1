// A deterministic scheduler for the real code: what a scenario (one small program of some threads)
// may use. The sources under test are compiled unchanged, with -fsanitize=thread but linked with
// this runtime in place of ThreadSanitizer's: so every atomic operation, every plain access and, by
// the names of the C library, every mutex, condition, futex and thread comes here. One thread runs
// at a time, and at each such operation the explorer decides who goes on.
//
// What is found, for the scenario at hand and within the bounds that are printed:
// - every interleaving of the synchronising operations with at most so many preemptions;
// - memory orders that are too weak, as far as they show by loads of older values: a load may see
//   any store that happens-before, coherence and the order of seq_cst operations do not rule out
//   (at most so many such loads per execution); that is a store buffer, or a late invalidation;
// - data races of plain memory (happens-before, by vector clocks), at the operation that races;
// - deadlocks and lost wake-ups: nobody can go on, and somebody has not ended;
// - whatever the scenario checks itself.
// What is not: loads of values that are stored later (load buffering), stores that come into a
// location's order before older ones, failures of compare_exchange that read old values or are
// spurious, spurious wake-ups of conditions, accesses by code that is not instrumented (the C++
// library's own objects, the kernel), orders within one system call, and time: waits with a
// deadline end by it only when nobody else can go on. tsan's builds run the whole product and see
// the first of these as races only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tests/model/clock.h"

namespace gpurun::model {

// Within a scenario.

// A thread; `name` is a literal. All must have ended, by join(), when the scenario returns.
int spawn(const char* name, std::function<void()> body);
void join(int thread);
// Whoever has ended is forgotten, so that a scenario may begin anew. Only the first thread is left.
void begin_anew();
// Until `ready` says yes, which it may be asked at any time, by whichever thread runs.
void until(const std::function<bool()>& ready, const char* what);
// Until every other thread waits for something, or has ended.
void settle();
// Another thread may go on here.
void point();
// One of 0 to `count` - 1: all are tried.
unsigned choose(unsigned count);
// Whether this execution is one of those at random.
bool random_phase();
// From here on, or not any more, there are choices; a scenario starts without.
void exploring(bool on);
// The thread reads or writes memory that uninstrumented code (a stand-in for the kernel) sees.
void reads(const void* from, std::size_t bytes);
void writes(void* to, std::size_t bytes);
// A way through the world outside: what goes in comes before what comes out.
class Passage {
 public:
  void in();
  void out();

 private:
  Clock clock_;
};
// What the scenario keeps about the run is no part of it: nothing is looked at meanwhile.
class Quiet {
 public:
  Quiet();
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};
// Ends the whole run: prints what is wrong, and how it came to it.
[[noreturn]] void violated(const std::string& what);
inline void check(bool holds, const char* what) {
  if (!holds) violated(what);
}

// The program's side.

struct Scenario {
  const char* name;
  void (*run)();
};

// Explores each: whole searches with ever more preemptions and loads of old values, until so many
// `executions` are done (or GPURUN_MODEL_EXECUTIONS), then as many at random (GPURUN_MODEL_SEED, or
// any, which is printed). Returns the exit status. Arguments: names of scenarios, none: all;
// `--finds TEXT`: something must be found, and the finding contain TEXT (or one of several, between
// bars).
int explore(int argc, char** argv, const Scenario* scenarios, std::size_t count,
            std::uint64_t executions);

}  // namespace gpurun::model
