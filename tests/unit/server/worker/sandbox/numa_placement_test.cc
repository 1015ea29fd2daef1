// NUMA placement: a worker's threads run on the processors of its GPUs' node, of those that it may
// use, and on all of them where that is not possible or means nothing.
#include "server/worker/sandbox/numa_placement.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/numa_nodes.h"
#include "tests/unit/tools/gpuctl/invented_machine.h"

namespace gpurun::server {
namespace {

PciDevice gpu_on(int node) {
  PciDevice gpu;
  gpu.node = node;
  return gpu;
}

// Nodes that share the processors of this machine: the last one is of node 1, the others of node 0.
class NumaPlacementTest : public testing::Test {
 protected:
  NumaPlacementTest() {
    if (before_.size() < 2) return;
    const std::string last = std::to_string(before_.back());
    add(0, before_.back() == 0 ? "" : "0-" + std::to_string(before_.back() - 1));
    add(1, last);
  }
  ~NumaPlacementTest() override { EXPECT_TRUE(allow_cpus(0, before_).ok()); }

  void add(int node, const std::string& cpus) {
    machine_.write("/sys/devices/system/node/node" + std::to_string(node) + "/cpulist",
                   cpus + "\n");
  }

  const std::vector<int> before_ = allowed_cpus();
  tools::InventedMachine machine_;
};

TEST_F(NumaPlacementTest, ThreadsRunOnTheNodeOfTheGpus) {
  if (before_.size() < 2) GTEST_SKIP() << "this process may use one processor";
  std::atomic<pid_t> number{0};
  std::atomic<bool> done{false};
  std::thread driver([&] {
    number = gettid();
    done.wait(false);
  });
  while (number == 0) std::this_thread::yield();
  const NumaPlacement placement = place_near({gpu_on(1), gpu_on(1)}, machine_.files());
  EXPECT_EQ(placement.node, 1);
  EXPECT_EQ(placement.cpus, std::vector<int>{before_.back()});
  EXPECT_EQ(allowed_cpus(), placement.cpus);
  EXPECT_EQ(allowed_cpus(number), placement.cpus);  // A thread that was there before.
  std::vector<int> later;
  std::thread([&] { later = allowed_cpus(); }).join();
  EXPECT_EQ(later, placement.cpus);
  done = true;
  done.notify_all();
  driver.join();
}

// Of the node's processors only those that the operator has left to this process.
TEST_F(NumaPlacementTest, NothingHappensWhereThePlaceMeansNothing) {
  if (before_.size() < 2) GTEST_SKIP() << "this process may use one processor";
  const auto stays = [&](const std::vector<PciDevice>& gpus) {
    const NumaPlacement placement = place_near(gpus, machine_.files());
    return placement.node == -1 && placement.cpus.empty() && allowed_cpus() == before_;
  };
  EXPECT_TRUE(stays({}));
  EXPECT_TRUE(stays({gpu_on(-1)}));
  EXPECT_TRUE(stays({gpu_on(0), gpu_on(1)}));
  EXPECT_TRUE(stays({gpu_on(7)}));
  add(7, "");  // Memory alone.
  EXPECT_TRUE(stays({gpu_on(7)}));
  add(7, std::to_string(kCpusMax - 1));  // A processor that this process may not use.
  EXPECT_TRUE(stays({gpu_on(7)}));
}

TEST_F(NumaPlacementTest, MachineWithOneNodeStaysAsItIs) {
  tools::InventedMachine one;
  one.write("/sys/devices/system/node/node1/cpulist", std::to_string(before_.back()) + "\n");
  EXPECT_EQ(place_near({gpu_on(1)}, one.files()).node, -1);
  EXPECT_EQ(allowed_cpus(), before_);
}

}  // namespace
}  // namespace gpurun::server
