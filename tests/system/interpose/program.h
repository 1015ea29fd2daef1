// Program: the parts that the cases of interpose_program share. It is a plain driver-API program
// without gpurun.
#pragma once

#include "driver_abi/cuda_abi.h"
#include "tests/support/cuda.h"

// Calls cuInit and makes the first device's primary context current.
CUcontext start();

// The cases.
void copies();
void blocks();
void pointers();
void pools();
void pool_places();
void errors();
void contexts();
void reset();
void streams();
void capture();
void exports();
void fork_rule();
void threads();
