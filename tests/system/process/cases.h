// Cases of process_program, a plain driver-API program that knows nothing of gpurun. Each case
// changes its own process as programs do, around CUDA calls, and prints the outcome.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <string>

#include "driver_abi/cuda_abi.h"

// A check may fail in a child, which must not run its parent's exit handlers.
#define CUDA_CHECK_END _exit
#include "tests/support/cuda.h"

namespace process_cases {

// Writes with one write(2), so that lines of several processes stay whole.
void say(const std::string& line);

// Calls cuInit and makes the first device's primary context current in this thread.
CUcontext use_device();
// Allocates, fills, runs a kernel, copies back and compares. Call use_device() first.
void compute(unsigned char value);
// As compute(), but returns the first failure. 0: right results.
int try_to_compute(unsigned char value);
// Returns a kernel of the current context that does nothing.
CUfunction nothing_kernel();

// Returns "exit 3" or "signal 6" for a child, which must end in time.
std::string end_of(pid_t child);
// Returns the n-th word after the case's name, or "" when it is missing.
std::string word(unsigned n);

// The cases, by file.
#define PROCESS_CASES(X)             \
  X(work)                            \
  /* forks.cc */                     \
  X(fork_before_init)                \
  X(fork_after_init)                 \
  X(fork_after_context)              \
  X(fork_from_a_thread)              \
  X(fork_child_ends)                 \
  X(fork_grandchild)                 \
  X(fork_after_questions)            \
  X(fork_while_asked)                \
  X(fork_at_first_question)          \
  X(fork_and_exec)                   \
  X(fork_without_handlers)           \
  X(exec_from_a_thread)              \
  X(orphan)                          \
  X(daemon_of_its_own)               \
  /* exits.cc */                     \
  X(leave)                           \
  X(shared_memory_of_ended_contexts) \
  /* signals.cc */                   \
  X(signal_storm)                    \
  X(signals_waited_for)              \
  X(own_handlers)                    \
  X(steady)                          \
  /* limits.cc */                    \
  X(limited)                         \
  X(system_calls_refused)            \
  X(small_stacks)                    \
  X(many_threads)                    \
  /* descriptors.cc */               \
  X(descriptors_closed)              \
  X(descriptors_reused)              \
  X(descriptors_closed_before)       \
  /* loading.cc */                   \
  X(environment_cleared)             \
  X(folder_removed)                  \
  X(another_root)                    \
  X(plugin_again)                    \
  /* visible.cc */                   \
  X(visible)                         \
  /* lost.cc */                      \
  X(lost)                            \
  /* host_pointers.cc */             \
  X(host_pointer)                    \
  /* managed_access.cc */            \
  X(managed_access)

#define PROCESS_DECLARE(name) void name();
PROCESS_CASES(PROCESS_DECLARE)
#undef PROCESS_DECLARE

}  // namespace process_cases
