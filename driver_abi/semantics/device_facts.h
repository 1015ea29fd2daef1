// Device facts: the forms in which calls give a device's attributes and its place on the bus.
//
// Source: CUDA Driver API manual, cuDeviceGetProperties and cuDeviceGetByPCIBusId.
#pragma once

#include <optional>

#include "driver_abi/cuda_abi.h"

namespace gpurun::driver_abi {

struct PciAddress {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned device = 0;
};

// [domain]:[bus]:[device].[function], or without domain or function. Nothing: another text, which
// is INVALID_VALUE.
std::optional<PciAddress> parse_pci_address(const char* text) noexcept;

// `value(CUdevice_attribute)`: the attribute's value.
template <typename Value>
CUdevprop properties_of(Value value) {
  CUdevprop filled{};
  filled.maxThreadsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  filled.maxThreadsDim[0] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X);
  filled.maxThreadsDim[1] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y);
  filled.maxThreadsDim[2] = value(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  filled.maxGridSize[0] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
  filled.maxGridSize[1] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  filled.maxGridSize[2] = value(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
  filled.sharedMemPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  filled.totalConstantMemory = value(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  filled.SIMDWidth = value(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  filled.memPitch = value(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  filled.regsPerBlock = value(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  filled.clockRate = value(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  filled.textureAlign = value(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return filled;
}

}  // namespace gpurun::driver_abi
