// Locked memory: what a limit allows is divided over the connections of a session, so that the
// first one leaves memory for the others, and ends with different limits still use RDMA.
#include "transport/rdma/locked_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "tests/support/low_locked_memory.h"
#include "tests/support/rdma_pair.h"

namespace gpurun::transport::rdma {
namespace {

using gpurun::test::LowLockedMemory;
using test::copies;
using test::pattern;
using test::RdmaPair;
using test::VerbsDouble;

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;

TEST(LockedMemory, IsDividedOverTheConnections) {
  EXPECT_EQ(ring_bytes_for(std::nullopt, 9), kRingBytes);
  EXPECT_EQ(ring_bytes_for(8 * kMib, 2), kRingBytes);
  EXPECT_EQ(ring_bytes_for(8 * kMib - 1, 2), kRingBytes / 2);
  EXPECT_EQ(ring_bytes_for(kMib, 2), kRingBytes / 8);
  EXPECT_EQ(ring_bytes_for(512 << 10, 2), kRingBytesMin);
  // The smallest ring is tried, and the device then says what is missing.
  EXPECT_EQ(ring_bytes_for(0, 2), kRingBytesMin);
  EXPECT_EQ(ring_bytes_for(8 * kMib, 0), kRingBytes);
}

TEST(LockedMemory, RingsLeaveWhatTheSessionRegistersLater) {
  constexpr LaterBytes kLater = {32 * kMib, 64 * kMib};
  constexpr std::uint64_t kSmallest = 8 * kRingBytesMin;
  EXPECT_EQ(ring_bytes_for(std::nullopt, 2, kLater), kRingBytes);
  EXPECT_EQ(ring_bytes_for(104 * kMib, 2, kLater), kRingBytes);
  EXPECT_EQ(ring_bytes_for(100 * kMib, 2, kLater), kRingBytes / 2);
  EXPECT_EQ(ring_bytes_for(96 * kMib + kSmallest, 2, kLater), kRingBytesMin);
  // The smallest rings leave too little for both parts, so the second one gets nothing.
  EXPECT_EQ(ring_bytes_for(96 * kMib + kSmallest - 1, 2, kLater), kRingBytes);
  EXPECT_EQ(ring_bytes_for(36 * kMib, 2, kLater), kRingBytes / 2);
  EXPECT_EQ(ring_bytes_for(32 * kMib + kSmallest, 2, kLater), kRingBytesMin);
  // Nor for the first part, so the rings have all of it.
  EXPECT_EQ(ring_bytes_for(32 * kMib + kSmallest - 1, 2, kLater), kRingBytes);
  EXPECT_EQ(ring_bytes_for(8 * kMib, 2, kLater), kRingBytes);
}

TEST(LockedMemory, LimitCountsOnlyWithoutTheCapability) {
  const LowLockedMemory low(3 * kMib);
  EXPECT_EQ(lockable_bytes(), 3 * kMib);
  std::string name = testing::TempDir() + "locked-memory-XXXXXX";  // Other runs have theirs.
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  const std::filesystem::path root = name;
  std::filesystem::create_directories(root / "proc/self");
  std::filesystem::create_directories(root / "proc/thread-self");
  const auto lockable_with = [&](const std::string& capabilities, const std::string& users) {
    std::ofstream(root / "proc/thread-self/status")
        << "Name:\tx\nVmPin:\t    1024 kB\nCapEff:\t" << capabilities << "\nSeccomp:\t0\n";
    std::ofstream(root / "proc/self/uid_map") << users << "\n";
    return lockable_bytes(SystemFiles(root.string()));
  };
  const std::string all = "         0          0 4294967295";
  EXPECT_EQ(lockable_with("0000000000004000", all), std::nullopt);
  EXPECT_EQ(lockable_with("000001ffffffbfff", all), 2 * kMib);  // 1 MiB is registered already.
  EXPECT_EQ(lockable_with("000001ffffffffff", "         0       1000          1"), 2 * kMib);
  std::filesystem::remove_all(root);
}

TEST(LockedMemory, LogLeavesMemoryForBulkConnections) {
  const LowLockedMemory low(kMib);
  VerbsDouble::set("rdma0", "memlock bytes=1048576");
  auto fabric = test::any_fabric();
  ASSERT_TRUE(fabric.ok()) << fabric.status().to_string();
  const Gid local = [] {
    Gid gid{};
    gid[10] = gid[11] = 0xff;
    gid[12] = 127;
    gid[15] = 1;
    return gid;
  }();
  auto log = (*fabric)->make_end(local, nullptr, {0, 2});
  ASSERT_TRUE(log.ok()) << log.status().to_string();
  EXPECT_EQ((*log)->offer().ring_bytes, 128U << 10);
  auto bulk = (*fabric)->make_end(local, nullptr, {1, 2});
  ASSERT_TRUE(bulk.ok()) << bulk.status().to_string();
  EXPECT_EQ((*bulk)->offer().ring_bytes, 128U << 10);
}

// The rings of both ends differ, also where messages are sent into slots.
TEST(LockedMemory, EndsWithDifferentRingsCopyInBothDirections) {
  const LowLockedMemory low(8 * kMib);
  for (const char* devices : {"rdma0", "rdma0 profile=send_only"}) {
    for (const bool client_has_less : {true, false}) {
      const EndPlace little{0, 32}, much{0, 1};
      RdmaPair pair(devices, client_has_less ? little : much, client_has_less ? much : little);
      const verbs_double_counts before = VerbsDouble::counts();
      EXPECT_TRUE(copies(pair, pattern(3 << 20, 2))) << devices;
      EXPECT_TRUE(test::copies_one_way(*pair.server, *pair.client, pattern(3 << 20, 4)));
      const verbs_double_counts after = VerbsDouble::counts();
      EXPECT_GE(after.posted_bytes - before.posted_bytes, 6U << 20);
      EXPECT_EQ(after.not_ready, before.not_ready) << devices;
      EXPECT_EQ(pair.client->changes().left + pair.server->changes().left, 0U) << devices;
    }
  }
}

}  // namespace
}  // namespace gpurun::transport::rdma
