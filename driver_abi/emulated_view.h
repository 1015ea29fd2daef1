// Emulated view: the export table that only gpurun's emulated device has. It holds what a
// forwarding worker needs beyond CUDA's own interface (docs/man/gpurun-emulated.7.md,
// library_capability).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpurun::driver_abi {

// "gpurun-emulated1" as the 16 bytes of a CUuuid.
inline constexpr std::array<std::uint8_t, 16> kEmulatedMarker = {
    'g', 'p', 'u', 'r', 'u', 'n', '-', 'e', 'm', 'u', 'l', 'a', 't', 'e', 'd', '1'};

// A kernel that the device has run.
struct KernelRun {
  std::uint64_t number;            // Set by the launching thread (number_launches).
  const char* name;                // Valid until the call returns.
  int device;                      // By the program's numbering.
  std::uint64_t stream;            // By cuStreamGetId's numbering.
  unsigned level;                  // 0: from the host. Otherwise from a kernel of level - 1.
  std::uint64_t begin_ns, end_ns;  // Of the process's steady clock (CLOCK_MONOTONIC).
  int result;                      // CUresult of this kernel.
  unsigned grid[3], block[3];
};
// Runs on a thread of the driver, which waits for it. It must not call the driver.
using KernelRunTold = void (*)(void* user, const KernelRun& run);

struct EmulatedView {
  std::size_t bytes;  // sizeof(EmulatedView), which is slot 0 of every table.
  // The compute capability (major * 10 + minor) that NVIDIA's math libraries get. 0: the same as
  // other callers.
  int (*library_capability)();
  // Bytes of device memory in use, by this process and the processes that share the device. 0 for a
  // device that does not exist or is not visible. `physical`: the device's index before
  // CUDA_VISIBLE_DEVICES.
  std::uint64_t (*used_bytes)(int physical);
  // The file that holds the object of a handle that this process made with cuIpcGetMemHandle or
  // cuIpcGetEventHandle (64 bytes). -1: the handle names nothing. The device keeps ownership of the
  // file.
  int (*ipc_file)(const void* handle);
  // Supplies the file of another process's handle, as its maker provided it, where /proc cannot be
  // used. The device copies it.
  void (*take_ipc_file)(const void* handle, int file);
  // Assigns later launches of the calling thread to this number. 0: to no number.
  void (*number_launches)(std::uint64_t number);
  // Whether the device implements the row of that opcode. Other rows return NOT_SUPPORTED.
  bool (*implements)(std::uint16_t opcode);
  // Reports each kernel's end from now on. nullptr: stops reporting.
  void (*watch_kernels)(KernelRunTold told, void* user);
};

// Whether the object of that file name reads the compute capability to choose machine code. Such a
// library gets EmulatedView::library_capability. NCCL does not count. It carries PTX for real
// capabilities. For an unknown capability it requests more shared memory than a block has
// (measured, 2.28).
inline bool chooses_code_by_capability(const char* path) noexcept {
  if (path == nullptr) return false;
  std::string_view name(path);
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0.
  for (const std::string_view library :
       {"libcublas", "libcudnn", "libcusolver", "libcusparse", "libcufft", "libcurand"}) {
    if (name.substr(0, library.size()) == library) return true;
  }
  return false;
}

}  // namespace gpurun::driver_abi
