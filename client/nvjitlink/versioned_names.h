// Versioned names: nvJitLink's functions have a name for each release beside the plain one, such as
// __nvJitLinkCreate_13_0. nvJitLink.h: "we will have separate API version for each library
// version".
#pragma once

#define GPURUN_NVJITLINK_NAME(function, release) \
  extern __attribute__((alias(                   \
      "nvJitLink" #function))) decltype(nvJitLink##function) __nvJitLink##function##_##release;

// For 12.0 to 13.9. A release that does not exist yet costs nothing.
#define GPURUN_NVJITLINK_RELEASES(function) \
  GPURUN_NVJITLINK_NAME(function, 12_0)     \
  GPURUN_NVJITLINK_NAME(function, 12_1)     \
  GPURUN_NVJITLINK_NAME(function, 12_2)     \
  GPURUN_NVJITLINK_NAME(function, 12_3)     \
  GPURUN_NVJITLINK_NAME(function, 12_4)     \
  GPURUN_NVJITLINK_NAME(function, 12_5)     \
  GPURUN_NVJITLINK_NAME(function, 12_6)     \
  GPURUN_NVJITLINK_NAME(function, 12_7)     \
  GPURUN_NVJITLINK_NAME(function, 12_8)     \
  GPURUN_NVJITLINK_NAME(function, 12_9)     \
  GPURUN_NVJITLINK_NAME(function, 13_0)     \
  GPURUN_NVJITLINK_NAME(function, 13_1)     \
  GPURUN_NVJITLINK_NAME(function, 13_2)     \
  GPURUN_NVJITLINK_NAME(function, 13_3)     \
  GPURUN_NVJITLINK_NAME(function, 13_4)     \
  GPURUN_NVJITLINK_NAME(function, 13_5)     \
  GPURUN_NVJITLINK_NAME(function, 13_6)     \
  GPURUN_NVJITLINK_NAME(function, 13_7)     \
  GPURUN_NVJITLINK_NAME(function, 13_8)     \
  GPURUN_NVJITLINK_NAME(function, 13_9)

#define GPURUN_NVJITLINK_VERSIONED_NAMES        \
  GPURUN_NVJITLINK_RELEASES(Create)             \
  GPURUN_NVJITLINK_RELEASES(Destroy)            \
  GPURUN_NVJITLINK_RELEASES(AddData)            \
  GPURUN_NVJITLINK_RELEASES(AddFile)            \
  GPURUN_NVJITLINK_RELEASES(Complete)           \
  GPURUN_NVJITLINK_RELEASES(GetLinkedCubinSize) \
  GPURUN_NVJITLINK_RELEASES(GetLinkedCubin)     \
  GPURUN_NVJITLINK_RELEASES(GetLinkedPtxSize)   \
  GPURUN_NVJITLINK_RELEASES(GetLinkedPtx)       \
  GPURUN_NVJITLINK_RELEASES(GetLinkedLTOIRSize) \
  GPURUN_NVJITLINK_RELEASES(GetLinkedLTOIR)     \
  GPURUN_NVJITLINK_RELEASES(GetErrorLogSize)    \
  GPURUN_NVJITLINK_RELEASES(GetErrorLog)        \
  GPURUN_NVJITLINK_RELEASES(GetInfoLogSize)     \
  GPURUN_NVJITLINK_RELEASES(GetInfoLog)
