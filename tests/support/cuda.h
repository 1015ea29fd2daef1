// Checks of programs that call CUDA: a wrong result ends the program with its place, the
// expression, and the error's name and number. They take results of the driver (cuda.h or
// driver_abi/cuda_abi.h) and of the runtime (cuda_runtime.h), whichever a program includes, and of
// any library that returns 0 for success. This header needs nothing else of the tree.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

// Ends the program after a failed check. A program that forks chooses _exit, because exit would run
// the parent's exit handlers in the child.
#ifndef CUDA_CHECK_END
#define CUDA_CHECK_END std::exit
#endif

namespace cuda_check {

// The name of a result. The compiler finds cuGetErrorName and cudaGetErrorName by the result's
// type, so that no program must link with both libraries.
template <typename Result>
auto name_of(Result result) -> decltype(cuGetErrorName(result, static_cast<const char**>(nullptr)),
                                        static_cast<const char*>(nullptr)) {
  const char* name = nullptr;
  return cuGetErrorName(result, &name) == 0 && name != nullptr ? name : "unnamed";
}
template <typename Result>
auto name_of(Result result) -> decltype(cudaGetErrorName(result)) {
  return cudaGetErrorName(result);
}

// "NAME: NUMBER" for results with a name, and "NUMBER" for all others.
struct Text {
  char text[120];
};
template <typename Result>
auto described(Result result, int) -> decltype(name_of(result), Text()) {
  Text out;
  std::snprintf(out.text, sizeof out.text, "%s: %ld", name_of(result), static_cast<long>(result));
  return out;
}
template <typename Result>
Text described(Result result, long) {
  Text out;
  std::snprintf(out.text, sizeof out.text, "%ld", static_cast<long>(result));
  return out;
}

// Flushes first, so that the line is whole among those of other processes.
[[noreturn]] inline void fail(const char* file, int line, const char* what, const char* why) {
  const char* const folder = std::strrchr(file, '/');
  std::fflush(stdout);
  std::printf("FAILED: %s:%d: %s%s%s\n", folder == nullptr ? file : folder + 1, line, what,
              *why == '\0' ? "" : ": ", why);
  std::fflush(stdout);
  CUDA_CHECK_END(1);
}

template <typename Result>
void must(Result result, const char* what, const char* file, int line) {
  if (static_cast<long>(result) == 0) return;
  fail(file, line, what, described(result, 0).text);
}

template <typename Expected, typename Result>
void must_be(Expected expected, Result result, const char* what, const char* file, int line) {
  if (static_cast<long>(expected) == static_cast<long>(result)) return;
  char why[300];
  std::snprintf(why, sizeof why, "not %s, but %s", described(expected, 0).text,
                described(result, 0).text);
  fail(file, line, what, why);
}

inline void expect(bool right, const char* what, const char* file, int line) {
  if (!right) fail(file, line, what, "");
}

}  // namespace cuda_check

#define MUST(call) ::cuda_check::must((call), #call, __FILE__, __LINE__)
#define MUST_BE(expected, call) ::cuda_check::must_be((expected), (call), #call, __FILE__, __LINE__)
#define EXPECT(condition) ::cuda_check::expect((condition), #condition, __FILE__, __LINE__)
