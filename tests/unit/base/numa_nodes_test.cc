// NUMA nodes: lists of processors are parsed strictly, and a thread's node follows from the
// processors that it may use.
#include "base/numa_nodes.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/tools/gpuctl/invented_machine.h"

namespace gpurun {
namespace {

using Cpus = std::vector<int>;

TEST(NumaNodes, CpuListsAscend) {
  EXPECT_EQ(parse_cpu_list("0-3,8"), (Cpus{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpu_list("7"), Cpus{7});
  EXPECT_EQ(parse_cpu_list(""), Cpus{});
  for (const char* wrong :
       {"1-", "-1", "3-1", "1,1", "2,1", "1,", ",1", "x", "0-8192", "1 2", "99999999999"}) {
    EXPECT_EQ(parse_cpu_list(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(parse_cpu_list("8191"), Cpus{kCpusMax - 1});
}

TEST(NumaNodes, NodesComeFromSysfs) {
  tools::InventedMachine machine;
  EXPECT_TRUE(numa_nodes(machine.files()).empty());
  const std::string all = "/sys/devices/system/node/";
  machine.write(all + "node0/cpulist", "0-1\n");
  machine.write(all + "node10/cpulist", "\n");
  machine.write(all + "node2/cpulist", "2-3\n");
  machine.write(all + "node3/cpulist", "x\n");
  machine.write(all + "nodes/cpulist", "4\n");
  machine.write(all + "possible", "0-10\n");
  const auto nodes = numa_nodes(machine.files());
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[1].number, 2);
  EXPECT_EQ(nodes[1].cpus, (Cpus{2, 3}));
  EXPECT_EQ(nodes[2].number, 10);
  EXPECT_TRUE(nodes[2].cpus.empty());
}

TEST(NumaNodes, NodeOfAThreadHasItsProcessors) {
  const std::vector<NumaNode> nodes = {{0, {0, 1}}, {2, {2, 3}}};
  EXPECT_EQ(node_of(nodes, {2, 3}, 0), 2);
  EXPECT_EQ(node_of(nodes, {1}, 3), 0);
  EXPECT_EQ(node_of(nodes, {0, 1, 2, 3}, 3), 2);  // It may use both, and runs there.
  EXPECT_EQ(node_of(nodes, {}, 9), -1);
  EXPECT_EQ(node_of({{0, {0, 1}}}, {0}, 0), -1);
}

TEST(NumaNodes, AllowedProcessorsAreReadBack) {
  const Cpus before = allowed_cpus();
  ASSERT_FALSE(before.empty());
  ASSERT_TRUE(allow_cpus(0, {before.back()}).ok());
  EXPECT_EQ(allowed_cpus(), Cpus{before.back()});
  ASSERT_TRUE(allow_cpus(0, before).ok());
  EXPECT_FALSE(allow_cpus(0, {}).ok());
}

}  // namespace
}  // namespace gpurun
