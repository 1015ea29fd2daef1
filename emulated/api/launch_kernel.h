// Launch preparation: checks a launch's arguments and makes them ready to run, for launches and for
// kernel nodes of graphs.
#pragma once

#include "emulated/api/entry.h"
#include "emulated/objects/launch.h"

namespace gpurun::emulated {

// The arguments of a launch as the program passed them. Borrowed.
struct LaunchCall {
  CUfunction function = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned dynamic_shared_bytes = 0;
  void** parameters = nullptr;
  void** extra = nullptr;
  bool cooperative = false;
  const CUlaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};

// Events that attributes of the launch record. nullptr: no event.
struct LaunchEvents {
  CUevent programmatic = nullptr;
  CUevent completion = nullptr;
};

// Checks everything that CUDA checks at the call. Copies the parameters and compiles the kernel for
// the context in which it will run. INVALID_HANDLE, INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES,
// INVALID_CLUSTER_SIZE, COOPERATIVE_LAUNCH_TOO_LARGE, NO_BINARY_FOR_GPU. NOT_SUPPORTED, with a log
// line, for clusters of more than one block.
CUresult prepare_launch(const ContextPtr& context, const LaunchCall& call, KernelLaunch* launch,
                        LaunchEvents* events);

// Sets one more attribute of a prepared launch, with the same checks.
CUresult apply_launch_attribute(const CUlaunchAttribute& attribute, KernelLaunch* launch);

}  // namespace gpurun::emulated
