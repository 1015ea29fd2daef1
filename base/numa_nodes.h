// NUMA nodes: the processors near each part of this machine's memory, and those that this process
// may use.
//
// Facts are those of sysfs-devices-node of the kernel's ABI documentation.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/system_files.h"

namespace gpurun {

// Processors have numbers below this.
inline constexpr int kCpusMax = 8192;

struct NumaNode {
  int number = 0;
  std::vector<int> cpus;  // Ascending. Empty: it has memory alone.
};

// Parses "0-3,8": ascending numbers below kCpusMax. Nothing: it is no such list.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

// Ascending by number. Empty: the kernel shows none.
std::vector<NumaNode> numa_nodes(const SystemFiles& files);

// The processors that a thread may use, ascending. 0: the calling thread. Empty: unknown.
std::vector<int> allowed_cpus(pid_t thread = 0);
// Restricts a thread, and the threads that it starts later, to these.
Status allow_cpus(pid_t thread, const std::vector<int>& cpus);

// The node that has all of `allowed`, or otherwise the one of `current`. -1: the machine has one
// node, or no node has them.
int node_of(const std::vector<NumaNode>& nodes, const std::vector<int>& allowed, int current);
// The node of the calling thread, by its allowed processors and the one on which it runs.
int node_of_this_thread(const SystemFiles& files);

}  // namespace gpurun
