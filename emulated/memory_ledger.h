// MemoryLedger: the count of the bytes of one emulated device that are in use by this process and
// others (docs/adr/0012).
//
// Without a file, a process has the device to itself. With a file, the kernel keeps the count. A
// byte of the file, which stays empty, stands for a byte of the device. A process that uses N bytes
// of the device holds locks on N bytes of the file (fcntl(2), F_SETLK). So the sum cannot exceed
// the device's total, and no process can change or free what another has taken. When a process
// dies, in whatever way, the kernel releases its locks. It does not matter which bytes are locked.
// Each process keeps its own in few runs.
//
// One thread at a time. A process has at most one ledger for a file. Closing any descriptor of the
// file, anywhere in the process, releases everything that the process has taken. POSIX defines
// these locks so.
#pragma once

#include <cstdint>
#include <vector>

namespace gpurun::emulated {

class MemoryLedger {
 public:
  // `file`: a descriptor that is open for reading and writing and stays open while the ledger
  // exists. -1: no file. Processes that share a file should agree on `bytes_total`.
  MemoryLedger(int file, std::uint64_t bytes_total);
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;
  // Releases what is still taken.
  ~MemoryLedger() { give(used_here_); }

  // False, and nothing is taken: all processes together would exceed the total.
  bool take(std::uint64_t bytes);
  // Gives back at most what take() has taken.
  void give(std::uint64_t bytes);

  std::uint64_t bytes_total() const { return bytes_total_; }
  // Free bytes, counted over all processes. When they hold more runs than this looks through, the
  // rest counts as taken.
  std::uint64_t bytes_free() const;

 private:
  struct Run {
    std::uint64_t start = 0;
    std::uint64_t bytes = 0;
    std::uint64_t end() const { return start + bytes; }
  };

  bool lock(const Run& run);
  void take_run(const Run& run);
  bool extend(std::uint64_t bytes);
  std::vector<Run> not_others() const;
  std::vector<Run> gaps() const;

  const int file_;
  const std::uint64_t bytes_total_;
  std::uint64_t used_here_ = 0;
  std::vector<Run> runs_;  // In the order in which they were taken.
};

// The descriptor of the ledger's file of the visible device `ordinal`, from the settings. -1: the
// settings name no file, or not one that a ledger can lock. A file that cannot be used costs one
// warning on the log.
int ledger_file(int ordinal);

}  // namespace gpurun::emulated
