// DeviceArena: the memory of one emulated device. It lies in one window of reserved addresses. An
// inaccessible page follows every allocation, so that a kernel that runs past its buffer faults. On
// a GPU it would fault later.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

#include "emulated/memory_ledger.h"
#include "emulated/objects/ipc_file.h"

namespace gpurun::emulated {

// Any thread.
class DeviceArena {
 public:
  // `bytes_total`: the size of the device. Memory is charged in whole pages. `ledger_file`: for the
  // MemoryLedger.
  explicit DeviceArena(std::uint64_t bytes_total, int ledger_file = -1);

  // Zeroed memory of `bytes` (over 0), aligned to a page, or to 2 MiB from 2 MiB on. 0: the
  // device's memory is used up.
  std::uint64_t allocate(std::uint64_t bytes);
  // `address` and `bytes` as for allocate().
  void free(std::uint64_t address, std::uint64_t bytes);

  // Makes a handle of memory from allocate() for other processes. The handle is the same each time
  // until free(). False: the memory cannot be shared. `device`: the index before
  // CUDA_VISIBLE_DEVICES.
  bool share(std::uint64_t address, std::uint64_t bytes, int device, IpcHandle* handle);
  // The descriptor of the memory that share() names. -1: the memory is not in a file.
  int shared_file() const;

  // The file behind memory from allocate(), and where in the file it begins. -1: the memory is not
  // in a file.
  int file_of(std::uint64_t address, std::uint64_t* offset) const;

  // Accounts for memory outside of the window (VMM, managed). False: the device's memory is used
  // up.
  bool charge(std::uint64_t bytes);
  void discharge(std::uint64_t bytes);

  std::uint64_t bytes_total() const { return bytes_total_; }
  // Counts all processes that share the device.
  std::uint64_t bytes_free() const;

 private:
  std::uint64_t take_addresses(std::uint64_t span, std::uint64_t alignment);
  void give_addresses(std::uint64_t start, std::uint64_t span);
  bool reserve_window();
  void* map_window(std::uint64_t span);

  const std::uint64_t bytes_total_;
  mutable std::mutex mutex_;
  MemoryLedger ledger_;
  std::unordered_map<std::uint64_t, std::uint64_t> live_;  // Start to span, guard included.
  bool window_reserved_ = false;
  std::uint64_t window_ = 0;  // Its start.
  // The file behind the window's memory, which other processes can map too. Not valid when no file
  // can be had.
  IpcFile file_;
  std::unordered_map<std::uint64_t, IpcHandle> shared_;  // By start.
  std::uint64_t cursor_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_;  // Start to length. Neighbours are merged.
};

}  // namespace gpurun::emulated
