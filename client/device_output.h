// DeviceOutput: what kernels print, between its arrival and the program's stdout; and what their
// assertions say, between its arrival and stderr.
//
// A driver writes device printf through the C library's stdout, inside the call that synchronises:
// so it stands in order with the program's own buffered output, and goes where the program's output
// goes. Who reads the log must not do that, because a program may hold stdout's lock, or nobody may
// read the pipe: it keeps the bytes, and the thread whose fence is answered writes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <mutex>

#include "base/bytes.h"

namespace gpurun::client {

class DeviceOutput {
 public:
  // More than this between two fences is dropped, with one warning: a device's own buffer is
  // 1 MiB unless cudaLimitPrintfFifoSize says otherwise.
  static constexpr std::size_t kBytesMax = std::size_t{256} << 20;

  explicit DeviceOutput(std::FILE* to) noexcept : to_(to) {}
  DeviceOutput(const DeviceOutput&) = delete;
  DeviceOutput& operator=(const DeviceOutput&) = delete;

  // Who reads the log. Never blocks. May throw std::bad_alloc.
  void keep(ByteView bytes, bool of_errors = false);
  // A thread of the program, inside a call of its own. Waits for stdout as printf would.
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
