// The device code of the program, as nvcc would have embedded it: PTX in a fat binary.
#pragma once

// A container (driver_abi/fatbin.h says what stands in it) with one PTX image for compute
// capability 5.2, in PTX 6.0: older than any runtime that is tried, so each takes it. Immortal.
const void* fat_binary();
