// The export table that only gpurun's emulated device has: what a forwarding worker must know of it
// beyond CUDA's own interface (docs/man/gpurun-emulated.7.md, library_capability).
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
  std::uint64_t number;            // That its launching thread had set; see number_launches.
  const char* name;                // Until the call returns.
  int device;                      // As the program counts them.
  std::uint64_t stream;            // As cuStreamGetId numbers them.
  unsigned level;                  // 0: the host launched it; else a kernel of the level before.
  std::uint64_t begin_ns, end_ns;  // Of the process's steady clock (CLOCK_MONOTONIC).
  int result;                      // CUresult of this kernel.
  unsigned grid[3], block[3];
};
// On a thread of the driver's, which waits: it must not call the driver.
using KernelRunTold = void (*)(void* user, const KernelRun& run);

struct EmulatedView {
  std::size_t bytes;  // sizeof(EmulatedView): slot 0 of every table.
  // Compute capability (major * 10 + minor) that NVIDIA's math libraries are told; 0: as everybody.
  int (*library_capability)();
  // Bytes of device memory in use, by this process and those that share the device with it; 0 for a
  // device that is not there or not visible.
  // `physical`: the device's index before CUDA_VISIBLE_DEVICES.
  std::uint64_t (*used_bytes)(int physical);
  // What the 64 bytes of cuIpcGetMemHandle or cuIpcGetEventHandle, made by this process, name lies
  // in this file; -1: they name nothing. It stays the device's.
  int (*ipc_file)(const void* handle);
  // Where another process's handle is to be opened and /proc cannot be used: the file that its
  // maker gave. Copied.
  void (*take_ipc_file)(const void* handle, int file);
  // What the calling thread launches from now on belongs to this number; 0: to none.
  void (*number_launches)(std::uint64_t number);
  // Whether the device implements the row of that opcode; what it does not, answers NOT_SUPPORTED.
  bool (*implements)(std::uint16_t opcode);
  // From now on each kernel's end is told; nullptr: not.
  void (*watch_kernels)(KernelRunTold told, void* user);
};

// Whether the object of that file name asks for the compute capability to choose machine code by
// it: such a library is told EmulatedView::library_capability. NCCL is none of them: it carries PTX
// for what is real, and sizes the shared memory of a capability that it does not know beyond what a
// block has (measured, 2.28).
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
