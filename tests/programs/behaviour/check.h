// Checks of the small programs: a failed call ends the program with its line and its name.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstdlib>

inline const char* name_of(CUresult code) {
  const char* name = nullptr;
  return cuGetErrorName(code, &name) == CUDA_SUCCESS && name != nullptr ? name : "unnamed";
}

inline void must(CUresult code, const char* what, int line) {
  if (code == CUDA_SUCCESS) return;
  std::printf("FAILED: line %d: %s: %s\n", line, what, name_of(code));
  std::exit(1);
}
#define MUST(call) must((call), #call, __LINE__)

inline void expect(bool good, const char* what, int line) {
  if (good) return;
  std::printf("FAILED: line %d: %s\n", line, what);
  std::exit(1);
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)
