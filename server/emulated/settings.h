// Settings of the emulated device: one variable, GPURUN_EMULATED, read once at cuInit.
//
// GPURUN_EMULATED is a list of key=value pairs, separated by commas or semicolons, for instance
//   GPURUN_EMULATED="devices=2,memory=4GiB,capability=9.0"
// Unknown keys and values out of range are ignored with one warning each.
//
// Keys, defaults and ranges: docs/man/gpurun-emulated.7.md, and the members below.
//
// Why two capabilities: at any real one cuBLAS, cuBLASLt and cuDNN choose kernels that exist as
// machine code only; told a major number that they do not know they use their PTX kernels.
// Applications must see a real one, because NVRTC and other compilers refuse unknown ones
// (measured; docs/cuda-gotchas.md).
//
// CUDA_VISIBLE_DEVICES restricts and orders the devices (driver_abi/visible_devices.h). It is read
// at cuInit, as NVIDIA's driver does: a program may set it after other questions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpurun::emulated {

// What driver_abi's table covers; it knows all of these.
inline constexpr int kNewestDriverVersion = 13050;

struct Settings {
  int devices = 1;
  std::uint64_t memory_bytes = std::uint64_t{8} << 30;
  int capability = 121;          // Major * 10 + minor.
  int library_capability = 130;  // 0: as `capability`.
  int multiprocessors = 8;
  int threads = 0;
  int driver_version = kNewestDriverVersion;
  std::string cache = "on";
  std::string tier = "auto";  // fibers, regions or auto: compiler.h, Tier.
  int watchdog_s = 60;
  bool watchdog_kills = false;
  std::string log;  // File for a line about each kernel that has run (kernel_log.h); "": none.
  // Open descriptors of the files by which processes share the memory of the visible devices, in
  // their order (memory_ledger.h). Devices beyond them share it with nobody.
  std::vector<int> ledger;
};

// Parses `text` (the variable's value; nullptr = defaults). Pure but for warnings on the log.
Settings parse_settings(const char* text);

// The process's settings, read from the environment at the first call. Any thread.
const Settings& settings();

// Physical indices of the devices that CUDA_VISIBLE_DEVICES leaves now, in the order in which
// programs see them.
std::vector<int> visible_physical_devices();

}  // namespace gpurun::emulated
