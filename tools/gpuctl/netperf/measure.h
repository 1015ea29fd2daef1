// Measuring: what one CUDA session can do, measured by a program that knows nothing of gpurun.
//
// `gpuctl netperf` runs this code as a program of its own under gpurun, once for each transport.
// The program uses CUDA's driver API by its exported names only. So it takes the way of any
// program.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpurun::tools {

// Times in microseconds.
struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0, max = 0;
  std::size_t count = 0;
};
// By nearest rank. All zero without samples.
Percentiles percentiles(std::vector<double> samples);

// Each measurement takes a share of the time. Its result goes to stdout as one line of JSON.
//
//   {"what":"round_trip","p50":1.0,"p90":1.0,"p99":1.0,"max":1.0,"count":1}
//   {"what":"calls","per_second":1.0}
//   {"what":"to_device_pinned","gb_per_second":1.0}
//
// Times are microseconds, and 1 GB is 10^9 bytes. "result" has the form of "round_trip", and is a
// read of 4 bytes of device memory. There are also "to_device_pageable", "from_device_pinned" and
// "from_device_pageable".
//
// kUnavailable: there is no libcuda.so.1, or it lacks a function. kCuda: a call failed.
Status measure_session(std::chrono::milliseconds time);

}  // namespace gpurun::tools
