// NUMA placement: sched_setaffinity(2) for each thread, and set_mempolicy(2).
#include "server/worker/sandbox/numa_placement.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <system_error>

#include "base/numa_nodes.h"

namespace gpurun::server {
namespace {

constexpr int kPreferred = 1;  // MPOL_PREFERRED of linux/mempolicy.h.
constexpr std::size_t kNodesMax = 1024;

// -1: the GPUs are on several nodes, or nothing is known.
int node_of_all(const std::vector<PciDevice>& gpus) {
  if (gpus.empty()) return -1;
  const int node = gpus.front().node;
  const bool same = std::all_of(gpus.begin(), gpus.end(),
                                [node](const PciDevice& gpu) { return gpu.node == node; });
  return same ? node : -1;
}

std::vector<int> in_both(const std::vector<int>& one, const std::vector<int>& other) {
  std::vector<int> both;
  std::set_intersection(one.begin(), one.end(), other.begin(), other.end(),
                        std::back_inserter(both));
  return both;
}

// New threads inherit it.
Status prefer_memory_of(int node) {
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  const auto number = static_cast<std::size_t>(node);
  if (number >= kNodesMax) return Status(Code::kUnavailable, "its number is too large");
  std::array<unsigned long, kNodesMax / kBits> nodes{};
  nodes[number / kBits] = 1UL << (number % kBits);
  if (syscall(SYS_set_mempolicy, kPreferred, nodes.data(), kNodesMax + 1) == 0) return {};
  return Status::from_errno(errno, "memory of a NUMA node");
}

}  // namespace

NumaPlacement place_near(const std::vector<PciDevice>& gpus, const SystemFiles& files) {
  NumaPlacement placement;
  const int number = node_of_all(gpus);
  const std::vector<NumaNode> nodes = numa_nodes(files);
  const auto node = std::find_if(nodes.begin(), nodes.end(),
                                 [number](const NumaNode& one) { return one.number == number; });
  if (nodes.size() < 2 || node == nodes.end()) return placement;
  const std::vector<int> cpus = in_both(allowed_cpus(), node->cpus);
  if (cpus.empty()) return placement;
  // The driver has threads already.
  for (const std::string& name : SystemFiles().entries("/proc/self/task")) {
    const auto thread = static_cast<pid_t>(std::strtol(name.c_str(), nullptr, 10));
    const std::vector<int> its = in_both(allowed_cpus(thread), node->cpus);
    if (its.empty()) continue;
    if (const Status put = allow_cpus(thread, its); !put.ok())
      placement.not_in_force = put.message();
  }
  // A thread that the kernel does not let go stays where it is.
  if (allowed_cpus() != cpus) return placement;
  placement.node = number;
  placement.cpus = cpus;
  if (const Status memory = prefer_memory_of(number); !memory.ok()) {
    placement.not_in_force = memory.message();
  }
  return placement;
}

}  // namespace gpurun::server
