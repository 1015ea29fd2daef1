// Device facts: the texts of a PCI address, and the properties that attributes fill.
#include "driver_abi/semantics/device_facts.h"

#include <gtest/gtest.h>

namespace gpurun::driver_abi {
namespace {

TEST(DeviceFacts, ParsesPciAddressWithOrWithoutDomain) {
  const auto whole = parse_pci_address("0001:1f:02.0");
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->domain, 1u);
  EXPECT_EQ(whole->bus, 0x1fu);
  EXPECT_EQ(whole->device, 2u);
  const auto without = parse_pci_address("1F:02.0");
  ASSERT_TRUE(without);
  EXPECT_EQ(without->domain, 0u);
  EXPECT_EQ(without->bus, 0x1fu);
  EXPECT_EQ(without->device, 2u);
  EXPECT_TRUE(parse_pci_address("1f:02"));
  EXPECT_FALSE(parse_pci_address("1f"));
  EXPECT_FALSE(parse_pci_address(""));
  EXPECT_FALSE(parse_pci_address("gpu:0"));
}

TEST(DeviceFacts, FillsPropertiesFromAttributes) {
  const CUdevprop properties = properties_of([](int id) { return 1000 + id; });
  EXPECT_EQ(properties.maxThreadsPerBlock, 1000 + CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  EXPECT_EQ(properties.maxThreadsDim[2], 1000 + CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z);
  EXPECT_EQ(properties.maxGridSize[1], 1000 + CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
  EXPECT_EQ(properties.sharedMemPerBlock, 1000 + CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  EXPECT_EQ(properties.totalConstantMemory, 1000 + CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  EXPECT_EQ(properties.SIMDWidth, 1000 + CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  EXPECT_EQ(properties.memPitch, 1000 + CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  EXPECT_EQ(properties.regsPerBlock, 1000 + CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  EXPECT_EQ(properties.clockRate, 1000 + CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  EXPECT_EQ(properties.textureAlign, 1000 + CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
}

}  // namespace
}  // namespace gpurun::driver_abi
