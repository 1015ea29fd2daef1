// ArenaFile: the memory file of this process's host arena, and its mappings (docs/adr/0040).
//
// The file is sparse. It is sealed against a change of its size, so that no access of the worker
// can fail later. What a forked child writes to a block reaches neither its parent nor a device, as
// with ordinary memory. But a page that the child has not written shows what the parent and its
// device write there after the fork, and zeros once the parent has freed it.
//
// Any thread, except where a comment restricts it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/descriptor_identity.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::client {

class ArenaFile {
 public:
  // Blocks that are mapped at a time, in this process. Further ones are refused.
  static constexpr std::size_t kBlocksMax = 1024;

  ArenaFile() = default;  // No file.
  // Makes a file of `bytes` with a descriptor of at least `fd_min`, once in each process. The
  // caller is a thread with its signals blocked. kResourceExhausted: a limit of this process
  // forbids it (ulimit -v, ulimit -f). Other errors are memfd_create()'s.
  static Result<ArenaFile> make(std::uint64_t bytes, int fd_min);

  // False once the program has closed the descriptor.
  bool is_open() const noexcept { return identity_.holds(fd_); }
  int fd() const noexcept { return fd_; }

  // Maps `bytes` from `offset` on at exactly `address`. All are multiples of the page size.
  //   kUnavailable         the addresses are in use.
  //   kResourceExhausted   kBlocksMax are mapped, or the file is closed.
  Status map(std::uint64_t address, std::uint64_t offset, std::uint64_t bytes) const noexcept;
  // Ends a mapping of map(). The pages go back to the system.
  static void unmap(std::uint64_t address, std::uint64_t bytes) noexcept;

 private:
  int fd_ = -1;  // Never closed here, because a session needs it to its end.
  DescriptorIdentity identity_;
};

}  // namespace gpurun::client
