// Settings of the emulated device: the values of one variable, GPURUN_EMULATED, read once at
// cuInit.
//
// GPURUN_EMULATED is a list of key=value pairs, separated by commas or semicolons, for instance
//   GPURUN_EMULATED="devices=2,memory=4GiB,capability=9.0"
// Unknown keys and values out of range are ignored with one warning each.
//
// Keys, defaults and ranges: docs/man/gpurun-emulated.7.md, and the members below.
//
// There are two capabilities because the CUDA libraries and the applications need different
// answers. At every real capability, cuBLAS, cuBLASLt and cuDNN choose kernels that exist as
// machine code only. With a major number that they do not know, they use their PTX kernels.
// Applications must see a real capability, because NVRTC and other compilers refuse unknown ones
// (docs/cuda-gotchas.md).
//
// CUDA_VISIBLE_DEVICES restricts and orders the devices (driver_abi/semantics/visible_devices.h).
// It is read at cuInit, as NVIDIA's driver does. A program may set it after other driver calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpurun::emulated {

// The newest version that driver_abi's table covers. The emulated device knows all of its
// functions.
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
  // File that gets a line about each kernel that has run (kernel_log.h). Empty: no file.
  std::string log;
  // Open descriptors of the files by which processes share the memory of the visible devices, in
  // device order (memory_ledger.h). Devices beyond them are not shared.
  std::vector<int> ledger;
};

// Parses `text`, the variable's value. nullptr: defaults. Its only effect is warnings on the log.
Settings parse_settings(const char* text);

// The process's settings, read from the environment at the first call. Any thread.
const Settings& settings();

// Physical indices of the devices that CUDA_VISIBLE_DEVICES leaves at present, in the order in
// which programs see them.
std::vector<int> visible_physical_devices();

}  // namespace gpurun::emulated
