// DeviceArena: the memory of one emulated device. It lies in one window of reserved addresses,
// every allocation followed by a page that nothing may touch, so that a kernel that runs past its
// buffer faults as it would on a GPU, only sooner.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

#include "server/emulated/memory_ledger.h"
#include "server/emulated/objects/ipc_file.h"

namespace gpurun::emulated {

// Any thread.
class DeviceArena {
 public:
  // Bytes that the device has in all; what is charged counts in whole pages. `ledger_file`: of a
  // MemoryLedger.
  explicit DeviceArena(std::uint64_t bytes_total, int ledger_file = -1);

  // Zeroed memory of `bytes` (over 0), aligned to a page, from 2 MiB on to 2 MiB. 0: the device's
  // memory is used up.
  std::uint64_t allocate(std::uint64_t bytes);
  // `address` and `bytes` as for allocate().
  void free(std::uint64_t address, std::uint64_t bytes);

  // Names memory of allocate() for other processes; the same handle each time until free(). False:
  // it cannot be shared. `device`: the index before CUDA_VISIBLE_DEVICES.
  bool share(std::uint64_t address, std::uint64_t bytes, int device, IpcHandle* handle);
  // Where what share() named lies; -1: nowhere.
  int shared_file() const;

  // Accounts for memory that lies elsewhere (VMM, managed). False: it is used up.
  bool charge(std::uint64_t bytes);
  void discharge(std::uint64_t bytes);

  std::uint64_t bytes_total() const { return bytes_total_; }
  // As all processes that share the device leave it.
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
  // What the window's memory is, so that other processes can map it too; not valid where there is
  // none to be had.
  IpcFile file_;
  std::unordered_map<std::uint64_t, IpcHandle> shared_;  // By start.
  std::uint64_t cursor_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_;  // Start to length; neighbours are merged.
};

}  // namespace gpurun::emulated
