// Names: the device files that programs look for, and the leased GPUs that they show.
//
// A program looks for files before it asks the driver, and computes on the CPU where they are
// missing. The names are exact. A name outside the list belongs to the C library alone.
//
//   /dev/nvidiactl, nvidia-uvm, nvidia0 ...             devices
//   /proc/driver/nvidia/version                         file
//   /proc/driver/nvidia/gpus/0000:01:00.0/information   file
//   /sys/bus/pci/devices/0000:01:00.0/numa_node         file
//
// Pure functions of the path and of the facts. Names below /dev need only the number of GPUs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "driver_abi/nvml_source.h"

namespace gpurun::client::device_files {

// What is known of the lease. Any thread.
struct Lease {
  // GPUs of the lease. 0: the process is in no lease, and nothing is shown. Costs no session.
  unsigned (*device_count)();
  // Whether this process is attached to its server already. Never attaches.
  bool (*attached)();
  // Each of these attaches the process if necessary. The number of GPUs is 0 on failure.
  unsigned (*described_count)();
  bool (*describe)(unsigned index, driver_abi::NvmlDevice* device);
  const char* (*driver_version)();
};

enum class Name : std::uint8_t {
  kNone,
  kGpu,
  kControl,
  kManagedMemory,
  kDriverFolder,
  kVersion,
  kGpusFolder,
  kGpuFolder,
  kInformation,
  kNumaNode,
};
enum class Kind : std::uint8_t { kDevice, kFile, kFolder };

struct Entry {
  Name name = Name::kNone;
  unsigned gpu = 0;

  bool found() const { return name != Name::kNone; }
  Kind kind() const;
};

// The entry of an absolute path. A folder's path may end with one slash.
Entry find_entry(std::string_view path, const Lease& lease);

// The minor number of a device: nvidia0 has 0.
unsigned minor_number(const Entry& device);

// The bytes of a file. Empty: the GPU's facts are unknown.
std::string content_of(const Entry& file, const Lease& lease);

struct Item {
  std::string name;
  Kind kind;
};
// What a folder holds beside what is there. Of /dev the devices, of another path what find_entry()
// finds. Empty for a path that is no such folder.
std::vector<Item> items_of(std::string_view folder, const Lease& lease);

}  // namespace gpurun::client::device_files
