// WriteWatch: finds the pages of this process's memory that were written since it looked last. The
// kernel notes writes (userfaultfd with asynchronous write protection, and PAGEMAP_SCAN,
// Linux 6.7). A first write to a page costs a page fault, and no thread waits for another.
//
// Where the kernel cannot do this, or a sandbox forbids it, every page counts as written. The
// program may close our descriptors. From then on every page counts as written, too.
//
// Only for private and anonymous memory. One thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "base/descriptor_identity.h"

namespace gpurun::client {

// Whether [address, address + bytes) is private and anonymous memory. Other processes may write to
// shared memory, which the kernel does not note here, and it forgets notes of pages that it writes
// to a file or to the swap.
bool is_private_memory(std::uint64_t address, std::uint64_t bytes);

class WriteWatch {
 public:
  struct Pages {
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
  };

  WriteWatch() = default;  // Notes nothing.
  ~WriteWatch();
  WriteWatch(const WriteWatch&) = delete;
  WriteWatch& operator=(const WriteWatch&) = delete;

  // Opens descriptors of at least `fd_min`. The caller is a thread with its signals blocked. False:
  // the system does not offer it.
  bool open(int fd_min);

  // Begins to note writes to [address, address + bytes), in whole pages, until end() or until they
  // are unmapped. False: they always count as written.
  bool begin(std::uint64_t address, std::uint64_t bytes);
  void end(std::uint64_t address, std::uint64_t bytes);
  // Adds the pages of the range that were written since begin(), or since the last call. A write
  // after this call is found by the next one. Never misses a page.
  void take_written(std::uint64_t address, std::uint64_t bytes, std::vector<Pages>* written);

 private:
  bool works() const noexcept;

  int faults_ = -1;   // The userfaultfd.
  int pagemap_ = -1;  // /proc/self/pagemap.
  DescriptorIdentity faults_identity_, pagemap_identity_;
};

}  // namespace gpurun::client
