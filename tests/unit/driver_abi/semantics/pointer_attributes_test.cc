// Pointer attributes of device, host, managed, pool and unknown memory: values, sizes and errors.
#include "driver_abi/semantics/pointer_attributes.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gpurun::driver_abi {
namespace {

constexpr std::uint64_t kAddress = 0x7000'0100;

PointerFacts device_memory() {
  PointerFacts facts;
  facts.address = kAddress;
  facts.base = 0x7000'0000;
  facts.bytes = 0x1000;
  facts.buffer_id = 5;
  facts.context = 0xc0;
  facts.ordinal = 3;
  facts.legacy_ipc = true;
  return facts;
}

PointerFacts host_memory() {
  PointerFacts facts = device_memory();
  facts.on_host = true;
  facts.legacy_ipc = false;
  return facts;
}

// The attribute's value. It must fill `T`, and nothing behind it.
template <typename T>
std::uint64_t value(CUpointer_attribute which, const PointerFacts& facts) {
  unsigned char out[16];
  std::memset(out, 0xee, sizeof out);
  EXPECT_EQ(pointer_attribute(out, which, facts), CUDA_SUCCESS) << which;
  for (std::size_t i = sizeof(T); i < sizeof out; ++i) EXPECT_EQ(out[i], 0xee) << which;
  T read;
  std::memcpy(&read, out, sizeof read);
  return (std::uint64_t)read;  // A number or a pointer.
}

bool lacks(CUpointer_attribute which, const PointerFacts& facts) {
  std::uint64_t out = 0xee;
  const CUresult result = pointer_attribute(&out, which, facts);
  EXPECT_EQ(out == 0xee, result != CUDA_SUCCESS);
  return result == CUDA_ERROR_INVALID_VALUE;
}

TEST(PointerAttributes, DescribeDeviceMemory) {
  const PointerFacts facts = device_memory();
  EXPECT_EQ(value<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, facts), 0xc0u);
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, facts), 2u);
  EXPECT_EQ(value<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, facts), kAddress);
  EXPECT_TRUE(lacks(CU_POINTER_ATTRIBUTE_HOST_POINTER, facts));
  EXPECT_EQ(value<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, facts), 5u);
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, facts), 0u);
  EXPECT_EQ(value<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, facts), 3u);
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, facts), 1u);
  EXPECT_EQ(value<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, facts), 0x7000'0000u);
  EXPECT_EQ(value<std::size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, facts), 0x1000u);
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, facts), 1u);
  EXPECT_EQ(value<std::uint64_t>(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, facts), 0u);
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, facts), 0u);
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, facts), 0u);
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, facts), 0u);
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, facts), 3u);
  EXPECT_EQ(value<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, facts), 0u);
}

TEST(PointerAttributes, DescribeHostMemory) {
  PointerFacts facts = host_memory();
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, facts), 1u);
  EXPECT_EQ(value<void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, facts), kAddress);
  EXPECT_EQ(value<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, facts), kAddress);
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, facts), 0u);
  facts.device_reaches = false;
  EXPECT_EQ(value<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, facts), 0u);
}

TEST(PointerAttributes, DescribeManagedMemoryAsDeviceMemory) {
  PointerFacts facts = device_memory();
  facts.managed = true;
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, facts), 2u);
  EXPECT_EQ(value<void*>(CU_POINTER_ATTRIBUTE_HOST_POINTER, facts), kAddress);
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_IS_MANAGED, facts), 1u);
}

TEST(PointerAttributes, DescribePoolAndUnmappedMemory) {
  PointerFacts facts = device_memory();
  facts.pool = 0xb0;
  facts.mapped = false;
  EXPECT_EQ(value<CUmemoryPool>(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, facts), 0xb0u);
  EXPECT_EQ(value<unsigned>(CU_POINTER_ATTRIBUTE_MAPPED, facts), 0u);
}

TEST(PointerAttributes, RefuseUnsupportedAttributes) {
  for (const int which : {0, 5, 18, 19, 20, 22, 23, -1}) {
    EXPECT_TRUE(lacks(static_cast<CUpointer_attribute>(which), device_memory())) << which;
  }
}

// The six that NVIDIA's runtime asks for in cudaPointerGetAttributes.
TEST(PointerAttributes, UnknownMemoryReturnsDefaults) {
  CUpointer_attribute which[] = {
      CU_POINTER_ATTRIBUTE_CONTEXT,      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::uint64_t context = 9, host = 9, device = 9;
  std::uint32_t type[2] = {9, 9}, managed[2] = {9, 9};
  std::int32_t ordinal[2] = {9, 9};
  void* out[] = {&context, type, &host, &device, managed, ordinal};
  ASSERT_EQ(pointer_attributes(6, which, out, nullptr, kAddress), CUDA_SUCCESS);
  EXPECT_EQ(context, 0u);
  EXPECT_EQ(host, kAddress);
  EXPECT_EQ(device, 0u);
  EXPECT_EQ(type[0], 0u);
  EXPECT_EQ(managed[0], 0u);
  EXPECT_EQ(ordinal[0], -2);
  EXPECT_EQ(type[1] + managed[1], 18u);  // Not written: the values have four bytes.
  EXPECT_EQ(ordinal[1], 9);
}

TEST(PointerAttributes, MissingAttributesReturnZeroInBatch) {
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                 CU_POINTER_ATTRIBUTE_MAPPING_SIZE};
  std::uint64_t host = 9, mapping = 9;
  void* out[] = {&host, &mapping};
  const PointerFacts facts = device_memory();
  ASSERT_EQ(pointer_attributes(2, which, out, &facts, kAddress), CUDA_SUCCESS);
  EXPECT_EQ(host, 0u);
  EXPECT_EQ(mapping, 0u);
}

TEST(PointerAttributes, BatchStopsAtFirstUnsupportedAttribute) {
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_BUFFER_ID};
  std::uint64_t values[3] = {9, 9, 9};
  void* out[] = {&values[0], &values[1], &values[2]};
  const PointerFacts facts = device_memory();
  EXPECT_EQ(pointer_attributes(3, which, out, &facts, kAddress), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(values[0], 5u);
  EXPECT_EQ(values[1], 9u);
  EXPECT_EQ(values[2], 9u);
  out[0] = nullptr;
  EXPECT_EQ(pointer_attributes(1, which, out, &facts, kAddress), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpurun::driver_abi
