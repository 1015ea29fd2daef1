// Image: the device code of the program as nvcc embeds it, PTX in a fat binary.
#pragma once

// Returns a container (see driver_abi/fatbin.h) with one PTX image for compute capability 5.2, in
// PTX 6.0. That is older than every tested runtime, so each accepts it. It is never freed.
const void* fat_binary();
