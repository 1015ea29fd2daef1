// DeviceOutput: the output of kernels on its way to the program's stdout, and their assertions' on
// its way to stderr.
//
// A driver writes device printf through the C library's stdout, inside the call that synchronises.
// The text is therefore in order with the program's own buffered output, and goes to the same
// place. The thread that reads the log must not write it. A program may hold stdout's lock, or its
// reader may not read the pipe. That thread keeps the bytes, and the thread with the answered fence
// writes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <mutex>

#include "base/bytes.h"

namespace gpurun::client {

class DeviceOutput {
 public:
  // More than this between two fences is dropped, with one warning. A device's own buffer is 1 MiB
  // unless cudaLimitPrintfFifoSize sets another size.
  static constexpr std::size_t kBytesMax = std::size_t{256} << 20;

  explicit DeviceOutput(std::FILE* to) noexcept : to_(to) {}
  DeviceOutput(const DeviceOutput&) = delete;
  DeviceOutput& operator=(const DeviceOutput&) = delete;

  // For the thread that reads the log. Never blocks. May throw std::bad_alloc.
  void keep(ByteView bytes, bool of_errors = false);
  // For a thread of the program, inside a call of its own. Waits for stdout as printf would.
  void write_kept() noexcept;

 private:
  std::FILE* const to_;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  Bytes kept_;         // Guarded by mutex_.
  Bytes kept_errors_;  // Guarded by mutex_.
  bool full_ = false;  // Guarded by mutex_.
};

}  // namespace gpurun::client
