// Launch attributes: what each CUlaunchAttributeID means for a launch and for a stream, and whether
// its value may travel to another process.
//
// Sources: CUDA Driver API manual, "CUlaunchAttributeID" and "CUlaunchAttributeValue" (which of
// them are valid for launches, streams and graph nodes), and cuda.h, CU_STREAM_ATTRIBUTE_*.
// Launches with the ids 4, 5, 6 and 10 were seen from NVIDIA's libraries.
#pragma once

#include <cstdint>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

enum class LaunchAttributeUse : std::uint8_t {
  kUnknown,       // INVALID_VALUE.
  kIgnored,       // Without any effect.
  kRequest,       // Changes the launch: cooperative, or a cluster.
  kHint,          // A preference, or a permission to overlap that need not be used.
  kEvent,         // The value begins with an event, which the launch records.
  kDeviceHandle,  // Returns a handle for use in kernels.
};

enum class StreamAttributeUse : std::uint8_t {
  kNone,         // INVALID_VALUE.
  kEveryDriver,  // Since CUDA 11.
  kNewDriver,    // Since CUDA 12.
};

struct LaunchAttributeRule {
  LaunchAttributeUse use = LaunchAttributeUse::kUnknown;
  StreamAttributeUse stream = StreamAttributeUse::kNone;
  // The value has no handle and no pointer to host memory, so it means the same in every process.
  bool crosses = false;
};

// `id`: any number.
LaunchAttributeRule launch_attribute(std::uint32_t id) noexcept;

// Whether the attribute of a kernel node, or of a stream, may be set and read. 0, or the CUresult.
// A value that holds an event or a device's handle belongs to a launch alone.
int check_node_attribute(std::uint32_t id) noexcept;
int check_stream_attribute(std::uint32_t id) noexcept;

}  // namespace gpurun::driver_abi
