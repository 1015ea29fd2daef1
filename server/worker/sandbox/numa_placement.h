// NUMA placement: a worker's threads and memory near its GPUs. Copies between main memory and a GPU
// of another node cross the link between processors.
#pragma once

#include <string>
#include <vector>

#include "base/pci_devices.h"
#include "base/system_files.h"

namespace gpurun::server {

struct NumaPlacement {
  int node = -1;             // The node of the GPUs. -1: the process stays where it may run.
  std::vector<int> cpus;     // On which its threads run. Empty: all that it had.
  std::string not_in_force;  // What the kernel has refused. Empty: nothing.
};

// Restricts all threads of this process, and those that they start, to the processors of the node
// of `gpus`, of those that each thread may use. Memory of new pages prefers that node. Nothing
// happens on a machine with one node, for GPUs of several nodes, or where none of the node's
// processors is allowed. Call it before system calls are given up.
NumaPlacement place_near(const std::vector<PciDevice>& gpus, const SystemFiles& files);

}  // namespace gpurun::server
