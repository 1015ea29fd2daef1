// MemoryLedger: how many bytes of one emulated device are in use, by this process and by the others
// that share the device (docs/adr/0012).
//
// Without a file a process has the device for itself. With one the kernel keeps the book: a byte of
// the file, which stays empty, stands for a byte of the device, and who uses N bytes of the device
// holds locks on N bytes of the file (fcntl(2), F_SETLK). So the sum cannot pass the device's
// total, no process can change or free what another has taken, and a death of any kind gives all
// back. Which bytes are locked means nothing; each process keeps its own in few runs.
//
// One thread at a time. At most one ledger of a process for a file, and whoever closes a descriptor
// of the file loses what the process has taken: that is how such locks are.
#pragma once

#include <cstdint>
#include <vector>

namespace gpurun::emulated {

class MemoryLedger {
 public:
  // `file`: a descriptor, open for reading and writing and never closed meanwhile; -1: no file.
  // Processes that share a file should agree on `bytes_total`.
  MemoryLedger(int file, std::uint64_t bytes_total);
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;
  // Gives back what is left.
  ~MemoryLedger() { give(used_here_); }

  // False, and nothing taken: no process may have them, for all together have too many.
  bool take(std::uint64_t bytes);
  // At most what take() has got.
  void give(std::uint64_t bytes);

  std::uint64_t bytes_total() const { return bytes_total_; }
  // Of all processes. Where they hold more runs than one would look through, the rest counts as
  // taken.
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

// The ledger's file of the visible device `ordinal`, as the settings name it; -1: none, or it is no
// file that a ledger can be kept with, which is said once on the log.
int ledger_file(int ordinal);

}  // namespace gpurun::emulated
