// Program: the parts that the cases of interpose_program share. It is a plain driver-API program
// without gpurun.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "driver_abi/cuda_abi.h"

// Ends the program when a call does not return the expected result.
inline void must_be(CUresult expected, CUresult got, const char* what, int line) {
  if (expected == got) return;
  std::printf("FAILED: line %d: %s: %d, expected %d\n", line, what, got, expected);
  std::exit(1);
}
inline void must_hold(bool truth, const char* what, int line) {
  if (truth) return;
  std::printf("FAILED: line %d: %s\n", line, what);
  std::exit(1);
}
#define MUST(call) must_be(CUDA_SUCCESS, (call), #call, __LINE__)
#define MUST_BE(expected, call) must_be((expected), (call), #call, __LINE__)
#define HOLDS(truth) must_hold((truth), #truth, __LINE__)

// Calls cuInit and makes the first device's primary context current.
CUcontext start();

// The cases.
void copies();
void blocks();
void pointers();
void pools();
void errors();
void contexts();
void reset();
void streams();
void capture();
void exports();
void fork_rule();
void threads();
