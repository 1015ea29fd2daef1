// PTX entries: names and parameter layouts of the kernels in PTX text, enough to pack a launch.
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

// Returns the `.entry` directives of `ptx` in file order. Reads kernel parameters (PTX ISA, "Kernel
// Function Parameters"), and skips what it does not understand.
std::vector<KernelEntry> read_entries(std::string_view ptx);

}  // namespace gpurun::null_device
