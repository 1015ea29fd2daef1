// Occupancy: equal to the published rules for real devices (CUDA
// Programming Guide, table of technical specifications per compute capability; the occupancy page
// of Nsight Compute shows the same).
#include "driver_abi/semantics/occupancy.h"

#include <gtest/gtest.h>

namespace gpurun::driver_abi {
namespace {

// Compute capability 8.0.
OccupancyDevice a100() {
  OccupancyDevice device;
  device.capability_major = 8;
  device.multiprocessors = 108;
  device.threads_per_block = 1024;
  device.threads_per_multiprocessor = 2048;
  device.blocks_per_multiprocessor = 32;
  device.registers_per_block = 65'536;
  device.registers_per_multiprocessor = 65'536;
  device.shared_per_multiprocessor = 164 * 1024;
  device.shared_per_block_optin = 163 * 1024;
  device.shared_reserved_per_block = 1024;
  return device;
}

// Compute capability 7.5: no reserved shared memory, and a coarser allocation unit.
OccupancyDevice t4() {
  OccupancyDevice device = a100();
  device.capability_major = 7;
  device.multiprocessors = 40;
  device.threads_per_multiprocessor = 1024;
  device.blocks_per_multiprocessor = 16;
  device.shared_per_multiprocessor = 64 * 1024;
  device.shared_per_block_optin = 64 * 1024;
  device.shared_reserved_per_block = 0;
  return device;
}

int blocks(const OccupancyDevice& device, int registers, int threads, std::size_t shared) {
  return max_active_blocks(device, {registers, 1024, 0}, threads, shared);
}

TEST(Occupancy, ThreadsAndBlocksLimitOccupancy) {
  EXPECT_EQ(blocks(a100(), 16, 1024, 0), 2);
  EXPECT_EQ(blocks(a100(), 16, 256, 0), 8);
  EXPECT_EQ(blocks(a100(), 16, 250, 0), 8);  // A partial warp takes a whole one.
  EXPECT_EQ(blocks(a100(), 16, 32, 0), 32);  // The threads would allow 64.
  EXPECT_EQ(blocks(t4(), 16, 32, 0), 16);
  EXPECT_EQ(blocks(t4(), 16, 1024, 0), 1);
}

TEST(Occupancy, RegistersLimitOccupancy) {
  EXPECT_EQ(blocks(a100(), 32, 256, 0), 8);  // 1024 a warp: 64 warps.
  EXPECT_EQ(blocks(a100(), 33, 256, 0), 6);  // Rounded to 1280: 12 in each of four files.
  EXPECT_EQ(blocks(a100(), 64, 256, 0), 4);
  EXPECT_EQ(blocks(a100(), 128, 256, 0), 2);
  EXPECT_EQ(blocks(a100(), 255, 256, 0), 1);  // 8192 a warp: 8 warps.
  EXPECT_EQ(blocks(a100(), 255, 257, 0), 0);  // More than a block may have.
  EXPECT_EQ(blocks(a100(), 168, 96, 0), 4);   // 5376 a warp: 3 in each file, 12 warps.
}

TEST(Occupancy, SharedMemoryLimitsOccupancy) {
  EXPECT_EQ(blocks(a100(), 16, 256, 48 * 1024), 3);  // 49 KiB with the reserved part.
  EXPECT_EQ(blocks(a100(), 16, 256, 163 * 1024), 1);
  EXPECT_EQ(blocks(a100(), 16, 256, 164 * 1024), 0);
  EXPECT_EQ(blocks(t4(), 16, 128, 32 * 1024), 2);
  EXPECT_EQ(blocks(t4(), 16, 128, 32 * 1024 + 1), 1);
  EXPECT_EQ(blocks(a100(), 16, 256, ~std::size_t{0}), 0);
}

// The limit is 48 KiB until the program sets another one for the kernel. A lower limit counts for
// the available memory, but not for the number of blocks (driver 580, H200).
TEST(Occupancy, KernelSharedMemoryLimitApplies) {
  const OccupancyFunction usual{16, 1024, 0, 48 * 1024};
  EXPECT_EQ(max_active_blocks(a100(), usual, 256, 48 * 1024), 3);
  EXPECT_EQ(max_active_blocks(a100(), usual, 256, 48 * 1024 + 1), 0);
  EXPECT_EQ(available_dynamic_shared(a100(), usual, 1, 256), 48u * 1024);
  EXPECT_EQ(available_dynamic_shared(a100(), usual, 8, 256), 20u * 1024 + 512);  // One block's
                                                                                 // share.
  const OccupancyFunction more{16, 1024, 0, 70'000};
  EXPECT_EQ(max_active_blocks(a100(), more, 256, 70'000), 2);
  EXPECT_EQ(max_active_blocks(a100(), more, 256, 70'001), 0);
  EXPECT_EQ(available_dynamic_shared(a100(), more, 1, 256), 70'000u);
  const OccupancyFunction less{16, 1024, 0, 100};
  EXPECT_EQ(max_active_blocks(a100(), less, 256, 48 * 1024), 3);
  EXPECT_EQ(max_active_blocks(a100(), less, 256, 48 * 1024 + 1), 0);
  EXPECT_EQ(available_dynamic_shared(a100(), less, 1, 256), 100u);
  const OccupancyFunction fixed{16, 1024, 4000, 100};
  EXPECT_EQ(max_active_blocks(a100(), fixed, 256, 48 * 1024 - 4000), 3);
  EXPECT_EQ(max_active_blocks(a100(), fixed, 256, 48 * 1024 - 3999), 0);
}

TEST(Occupancy, InvalidBlockSizeReturnsZero) {
  EXPECT_EQ(blocks(a100(), 16, 1025, 0), 0);
  EXPECT_EQ(blocks(a100(), 16, 0, 0), 0);
}

// A kernel's launch bounds refuse a launch, but do not change this number (driver 580, H200).
TEST(Occupancy, IgnoresLaunchBounds) {
  EXPECT_EQ(max_active_blocks(a100(), {16, 256, 0}, 512, 0), 4);
}

// As on an H200 (driver 580): the share of a multiprocessor's 228 KiB, in units of 128 bytes, less
// the static part. The driver's reserve for each block counts for the number of blocks, but not
// here.
TEST(Occupancy, AvailableSharedMemoryDependsOnBlockCount) {
  OccupancyDevice h200 = a100();
  h200.capability_major = 9;
  h200.shared_per_multiprocessor = 228 * 1024;
  h200.shared_per_block_optin = 227 * 1024;
  const OccupancyFunction usual{16, 1024, 0, 48 * 1024};
  EXPECT_EQ(available_dynamic_shared(h200, usual, 4, 32), 49'152u);
  EXPECT_EQ(available_dynamic_shared(h200, usual, 5, 32), 46'592u);
  EXPECT_EQ(available_dynamic_shared(h200, usual, 29, 32), 7936u);
  const OccupancyFunction fixed{16, 1024, 4000, 48 * 1024 - 4000};
  EXPECT_EQ(available_dynamic_shared(h200, fixed, 5, 32), 42'592u);
  EXPECT_EQ(available_dynamic_shared(h200, fixed, 4, 32), 45'152u);
  EXPECT_EQ(max_active_blocks(h200, usual, 32, 46'592), 4);                 // Not five.
  EXPECT_EQ(available_dynamic_shared(h200, usual, 3, 1024), std::nullopt);  // Too many threads for
                                                                            // a multiprocessor.
  EXPECT_EQ(available_dynamic_shared(h200, usual, 17, 128), std::nullopt);
}

// 108 multiprocessors with four blocks of 512 threads each.
TEST(Occupancy, LimitsCooperativeGrid) {
  const OccupancyFunction usual{16, 1024, 0, 48 * 1024};
  const auto holds = [&](std::uint32_t x, std::uint32_t y, std::uint32_t z, std::uint32_t threads) {
    return holds_whole_grid(a100(), usual, {{x, y, z}, {threads, 1, 1}, 0});
  };
  EXPECT_TRUE(holds(432, 1, 1, 512));
  EXPECT_FALSE(holds(433, 1, 1, 512));
  EXPECT_TRUE(holds(108, 2, 2, 512));
  EXPECT_FALSE(holds(108, 2, 3, 512));
  EXPECT_FALSE(holds(1, 1, 1, 1025));
  EXPECT_FALSE(holds(0x7fffffff, 65'535, 65'535, 1));
  // 3 blocks of 48 KiB on each.
  EXPECT_TRUE(holds_whole_grid(a100(), usual, {{324, 1, 1}, {32, 1, 1}, 48 * 1024}));
  EXPECT_FALSE(holds_whole_grid(a100(), usual, {{325, 1, 1}, {32, 1, 1}, 48 * 1024}));
}

std::size_t none(void*, int) { return 0; }
std::size_t by_thread(void*, int threads) { return static_cast<std::size_t>(threads) * 64; }

TEST(Occupancy, ChoosesLargestOptimalBlock) {
  EXPECT_EQ(best_block(a100(), {32, 1024, 0}, &none, nullptr, 0).block_threads, 1024);
  EXPECT_EQ(best_block(a100(), {32, 1024, 0}, &none, nullptr, 0).grid_blocks, 216);
  EXPECT_EQ(best_block(a100(), {32, 1024, 0}, &none, nullptr, 300).block_threads, 256);
  // 1280 registers a warp: 48 warps, in blocks of 24.
  EXPECT_EQ(best_block(a100(), {40, 1024, 0}, &none, nullptr, 0).block_threads, 768);
  EXPECT_EQ(best_block(a100(), {32, 1024, 0}, &by_thread, nullptr, 0).block_threads, 1024);
  // Blocks of 100 threads waste most of a warp. With 96 a warp remains unused.
  EXPECT_EQ(best_block(a100(), {32, 100, 0}, &none, nullptr, 0).block_threads, 64);
}

}  // namespace
}  // namespace gpurun::driver_abi
