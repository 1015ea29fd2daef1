// Names and parameter layouts of the kernels in PTX text: enough for a launch to be packed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gpurun::null_device {

struct KernelParameter {
  std::size_t offset;
  std::size_t bytes;
};

struct KernelEntry {
  std::string name;
  std::vector<KernelParameter> parameters;
};

// The `.entry` directives of `ptx`, in file order. Reads what the PTX ISA calls kernel parameters
// (PTX ISA, "Kernel Function Parameters"); what it does not understand it leaves out.
std::vector<KernelEntry> read_entries(std::string_view ptx);

}  // namespace gpurun::null_device
