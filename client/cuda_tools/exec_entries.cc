// Exec entries: the C library's functions that start a program. A ptxas starts in another way
// (start.h), and everything else as before.
#include <spawn.h>
#include <unistd.h>

#include <cstdarg>

#include "client/cuda_tools/start.h"
#include "client/process/next_function.h"

extern char** environ;

namespace gpurun::client::cuda_tools {
namespace {

using Exec = int(const char*, char* const*, char* const*);
using Spawn = int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                  char* const*, char* const*);

constinit NextFunction<Exec> next_execve("execve");
constinit NextFunction<Exec> next_execvpe("execvpe");
constinit NextFunction<Spawn> next_spawn("posix_spawn");
constinit NextFunction<Spawn> next_spawnp("posix_spawnp");

// Apart from the functions that every start passes, because a Start takes much of the stack.
[[gnu::noinline]] int execute_ptxas(NextFunction<Exec>* next, const char* file,
                                    char* const* arguments, char* const* env, bool search) {
  Start start;
  if (!change_start(file, arguments, search, &start)) return (*next)(file, arguments, env);
  return next_execve(start.program, start.arguments, env);
}

int execute(NextFunction<Exec>* next, const char* file, char* const* arguments, char* const* env,
            bool search) {
  if (is_ptxas(file)) return execute_ptxas(next, file, arguments, env, search);
  return (*next)(file, arguments, env);
}

[[gnu::noinline]] int spawn_ptxas(NextFunction<Spawn>* next, pid_t* process, const char* file,
                                  const posix_spawn_file_actions_t* actions,
                                  const posix_spawnattr_t* attributes, char* const* arguments,
                                  char* const* env, bool search) {
  Start start;
  if (!change_start(file, arguments, search, &start)) {
    return (*next)(process, file, actions, attributes, arguments, env);
  }
  return next_spawn(process, start.program, actions, attributes, start.arguments, env);
}

int spawn(NextFunction<Spawn>* next, pid_t* process, const char* file,
          const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
          char* const* arguments, char* const* env, bool search) {
  if (is_ptxas(file)) {
    return spawn_ptxas(next, process, file, actions, attributes, arguments, env, search);
  }
  return (*next)(process, file, actions, attributes, arguments, env);
}

// Counts the arguments of a call with a list that NULL ends.
std::size_t count_arguments(const char* first, va_list rest) {
  va_list list;
  va_copy(list, rest);
  std::size_t count = 0;
  for (const char* each = first; each != nullptr; each = va_arg(list, const char*)) ++count;
  va_end(list);
  return count;
}

// Fills an array for them. `rest` is then behind the NULL.
#define GPURUN_ARGUMENTS(first, rest)                                                    \
  const std::size_t count = count_arguments(first, rest);                                \
  char** arguments = static_cast<char**>(__builtin_alloca((count + 1) * sizeof(char*))); \
  arguments[0] = const_cast<char*>(first);                                               \
  for (std::size_t at = 1; at <= count; ++at) arguments[at] = va_arg(rest, char*)

}  // namespace

extern "C" {

int started_execve(const char* file, char* const* arguments, char* const* env) GPURUN_AS("execve");
int started_execv(const char* file, char* const* arguments) GPURUN_AS("execv");
int started_execvp(const char* file, char* const* arguments) GPURUN_AS("execvp");
int started_execvpe(const char* file, char* const* arguments, char* const* env)
    GPURUN_AS("execvpe");
int started_execl(const char* file, const char* first, ...) GPURUN_AS("execl");
int started_execlp(const char* file, const char* first, ...) GPURUN_AS("execlp");
int started_execle(const char* file, const char* first, ...) GPURUN_AS("execle");
int started_spawn(pid_t* process, const char* file, const posix_spawn_file_actions_t* actions,
                  const posix_spawnattr_t* attributes, char* const* arguments, char* const* env)
    GPURUN_AS("posix_spawn");
int started_spawnp(pid_t* process, const char* file, const posix_spawn_file_actions_t* actions,
                   const posix_spawnattr_t* attributes, char* const* arguments, char* const* env)
    GPURUN_AS("posix_spawnp");

int started_execve(const char* file, char* const* arguments, char* const* env) {
  return execute(&next_execve, file, arguments, env, false);
}
int started_execv(const char* file, char* const* arguments) {
  return execute(&next_execve, file, arguments, environ, false);
}
int started_execvp(const char* file, char* const* arguments) {
  return execute(&next_execvpe, file, arguments, environ, true);
}
int started_execvpe(const char* file, char* const* arguments, char* const* env) {
  return execute(&next_execvpe, file, arguments, env, true);
}

// The C library's own execl() and its like start programs without our functions.
int started_execl(const char* file, const char* first, ...) {
  va_list rest;
  va_start(rest, first);
  GPURUN_ARGUMENTS(first, rest);
  va_end(rest);
  return execute(&next_execve, file, arguments, environ, false);
}
int started_execlp(const char* file, const char* first, ...) {
  va_list rest;
  va_start(rest, first);
  GPURUN_ARGUMENTS(first, rest);
  va_end(rest);
  return execute(&next_execvpe, file, arguments, environ, true);
}
int started_execle(const char* file, const char* first, ...) {
  va_list rest;
  va_start(rest, first);
  GPURUN_ARGUMENTS(first, rest);
  char* const* env = va_arg(rest, char* const*);
  va_end(rest);
  return execute(&next_execve, file, arguments, env, false);
}

int started_spawn(pid_t* process, const char* file, const posix_spawn_file_actions_t* actions,
                  const posix_spawnattr_t* attributes, char* const* arguments, char* const* env) {
  return spawn(&next_spawn, process, file, actions, attributes, arguments, env, false);
}
int started_spawnp(pid_t* process, const char* file, const posix_spawn_file_actions_t* actions,
                   const posix_spawnattr_t* attributes, char* const* arguments, char* const* env) {
  return spawn(&next_spawnp, process, file, actions, attributes, arguments, env, true);
}

}  // extern "C"
}  // namespace gpurun::client::cuda_tools
