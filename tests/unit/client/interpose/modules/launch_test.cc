// Launches in the client: a block has exactly the layout of the kernel's parameters and holds
// nothing else. Limits give the driver's codes. Known tables belong to the right image and device.
#include "client/interpose/modules/launch.h"

#include <gtest/gtest.h>

#include <cstring>

#include "protocol/limits.h"

namespace gpurun::client::interpose::modules {
namespace {

using protocol::KernelDescription;
using protocol::KernelParameter;
using protocol::LaunchPayload;

Kernel kernel(std::vector<KernelParameter> parameters, bool known = true) {
  return Kernel(KernelDescription{"k", true, known, std::move(parameters), {1024}});
}

TEST(PackedParameters, CopiesParametersToOffsetsAndZeroesGaps) {
  const Kernel mixed = kernel({{0, 1}, {8, 8}, {16, 2}});
  char letter = 'c';
  double number = 2.5;
  short word = 7;
  void* parameters[] = {&letter, &number, &word};
  PackedParameters packed;
  ASSERT_EQ(packed.pack(mixed, parameters, nullptr), 0);
  ASSERT_EQ(packed.block.size(), 18u);
  EXPECT_EQ(packed.layout_hash, mixed.layout_hash);
  std::byte expected[18] = {};
  std::memcpy(expected, &letter, 1);
  std::memcpy(expected + 8, &number, 8);
  std::memcpy(expected + 16, &word, 2);
  EXPECT_EQ(std::memcmp(packed.block.data(), expected, sizeof expected), 0);
}

// A cluster of several blocks, from the kernel or the launch, on a device without clusters.
TEST(CheckCluster, RefusesMoreThanOneBlock) {
  const Kernel plain = kernel({});
  LaunchPayload launch;
  launch.grid[0] = 4, launch.grid[1] = launch.grid[2] = 1;
  protocol::LaunchAttribute asked = {};
  asked.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  const auto check = [&](std::array<int, 3> required, std::array<std::uint32_t, 3> wanted) {
    std::memcpy(asked.value, wanted.data(), sizeof wanted);
    return check_cluster(plain, required, launch, std::span(&asked, wanted[0] == 0 ? 0 : 1));
  };
  EXPECT_EQ(check({0, 0, 0}, {0}), 0);
  EXPECT_EQ(check({1, 1, 1}, {0}), 0);
  EXPECT_EQ(check({0, 0, 0}, {1, 1, 1}), 0);
  EXPECT_EQ(check({2, 1, 1}, {0}), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(check({0, 0, 0}, {4, 1, 1}), CUDA_ERROR_NOT_SUPPORTED);
  // The driver decides these.
  EXPECT_EQ(check({0, 0, 0}, {3, 1, 1}), 0);
  EXPECT_EQ(check({0, 0, 0}, {0xffffffff, 0xffffffff, 2}), 0);
}

TEST(PackedParameters, AcceptsLargestBlock) {
  const auto most = static_cast<std::uint32_t>(limits::kKernelParameterBytesMax);
  const Kernel large = kernel({{0, most}});
  const Bytes source(most, std::byte{3});
  void* parameters[] = {const_cast<std::byte*>(source.data())};
  PackedParameters packed;
  ASSERT_EQ(packed.pack(large, parameters, nullptr), 0);
  EXPECT_EQ(packed.block.size(), most);
  EXPECT_EQ(packed.block[most - 1], std::byte{3});
}

TEST(PackedParameters, UsesCallersBuffer) {
  const std::uint64_t words[2] = {1, 2};
  std::size_t bytes = sizeof words;
  void* extra[] = {reinterpret_cast<void*>(1), const_cast<std::uint64_t*>(words),
                   reinterpret_cast<void*>(2), &bytes, nullptr};
  PackedParameters packed;
  ASSERT_EQ(packed.pack(kernel({{0, 8}}), nullptr, extra), 0);
  EXPECT_EQ(packed.block.data(), reinterpret_cast<const std::byte*>(words));
  EXPECT_EQ(packed.block.size(), 16u);
  EXPECT_EQ(packed.layout_hash, 0u);
  bytes = limits::kKernelParameterBytesMax + 1;
  EXPECT_EQ(packed.pack(kernel({{0, 8}}), nullptr, extra), CUDA_ERROR_INVALID_VALUE);
  extra[0] = reinterpret_cast<void*>(9);
  EXPECT_EQ(packed.pack(kernel({{0, 8}}), nullptr, extra), CUDA_ERROR_INVALID_VALUE);
}

TEST(PackedParameters, RejectsInvalidParameters) {
  int value = 0;
  void* parameters[] = {&value};
  void* missing[] = {nullptr};
  void* extra[] = {nullptr};
  PackedParameters packed;
  const Kernel one = kernel({{0, 4}});
  EXPECT_EQ(packed.pack(one, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(packed.pack(one, parameters, extra), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(packed.pack(one, missing, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(packed.pack(kernel({}, false), parameters, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(packed.pack(kernel({}), nullptr, nullptr), 0);
  EXPECT_TRUE(packed.block.empty());
}

LaunchLimits limits_of_a_device() {
  LaunchLimits limits;
  limits.grid[0] = 0x7fffffff;
  limits.grid[1] = limits.grid[2] = 65'535;
  limits.block[0] = limits.block[1] = 1024;
  limits.block[2] = 64;
  limits.device_threads = 1024;
  limits.kernel_threads = 512;
  limits.dynamic_shared_bytes = 49'152;
  limits.dynamic_shared_known = true;
  return limits;
}

int check(std::uint32_t grid_y, std::uint32_t x, std::uint32_t y, std::uint32_t z,
          std::uint32_t shared = 0) {
  LaunchPayload launch;
  launch.grid[1] = grid_y;
  launch.block[0] = x;
  launch.block[1] = y;
  launch.block[2] = z;
  launch.shared_bytes = shared;
  return check_launch(limits_of_a_device(), launch);
}

TEST(CheckLaunch, ReturnsDriverErrorCodes) {
  EXPECT_EQ(check(1, 512, 1, 1), 0);
  EXPECT_EQ(check(65'535, 1, 1, 1), 0);
  EXPECT_EQ(check(65'536, 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check(0, 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check(1, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check(1, 1, 1, 65), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check(1, 1024, 2, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(check(1, 1024, 1, 1), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(check(1, 1, 1, 1, 49'152), 0);
  EXPECT_EQ(check(1, 1, 1, 1, 49'153), CUDA_ERROR_INVALID_VALUE);
}

TEST(CheckLaunch, DoesNotOverflowWithoutLimits) {
  LaunchPayload launch;
  for (std::uint32_t& width : launch.block) width = 0xffffffff;
  EXPECT_EQ(check_launch({}, launch), CUDA_ERROR_INVALID_VALUE);
}

TEST(PackAttributes, OmitsIgnoredAttributes) {
  CUlaunchAttribute given[2] = {};
  given[0].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
  given[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  given[1].value.clusterDim.x = 2;
  protocol::LaunchAttribute packed[2];
  unsigned written = 0;
  ASSERT_EQ(pack_attributes(given, 2, packed, &written), 0);
  ASSERT_EQ(written, 1u);
  EXPECT_EQ(packed[0].id, 4u);
  unsigned x = 0;
  std::memcpy(&x, packed[0].value, sizeof x);
  EXPECT_EQ(x, 2u);
  given[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  EXPECT_EQ(pack_attributes(given, 2, std::span(packed, 1), &written), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(pack_attributes(nullptr, 1, packed, &written), CUDA_ERROR_INVALID_VALUE);
}

TEST(KernelTable, UpdatesDescriptionAndKeepsOldKernel) {
  KernelTable table(0);
  const Kernel* first = table.add(KernelDescription{"a", false, false, {}, {}});
  table.add(KernelDescription{"b", true, true, {{0, 8}}, {}});
  EXPECT_EQ(table.find("a"), first);
  const Kernel* described = table.add(KernelDescription{"a", true, true, {{0, 4}}, {}});
  EXPECT_EQ(table.find("a"), described);
  EXPECT_EQ(first->name, "a");
  ASSERT_EQ(table.kernels().size(), 2u);
  EXPECT_EQ(table.kernels()[0], described);
  EXPECT_EQ(table.find("c"), nullptr);
}

TEST(KnownImages, EvictsOldestBeyondLimit) {
  KnownImages known;
  const auto digest = [](std::size_t i) {
    Sha256Digest value{};
    std::memcpy(value.data(), &i, sizeof i);
    return value;
  };
  for (std::size_t i = 0; i <= KnownImages::kImagesMax; ++i) {
    known.add(digest(i), std::make_shared<KernelTable>(0));
  }
  EXPECT_EQ(known.find(digest(0), 0), nullptr);
  EXPECT_NE(known.find(digest(1), 0), nullptr);
  EXPECT_EQ(known.find(digest(1), 1), nullptr);  // Another device has its own attributes.
}

}  // namespace
}  // namespace gpurun::client::interpose::modules
