// DeviceOutput: what kernels have printed and not yet been shown. Texts are formatted on the device
// and shown in the order in which they were printed, when the driver synchronises.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

namespace gpurun::emulated {

// Any thread.
class DeviceOutput {
 public:
  enum class Target { kStdout, kStderr };
  // Takes one record; called with no lock held.
  using Sink = std::function<void(Target, const std::string& text)>;

  // CU_LIMIT_PRINTF_FIFO_SIZE's default (CUDA Programming Guide, "Formatted output").
  static constexpr std::size_t kBytesDefault = std::size_t{1} << 20;

  // What exceeds `bytes` overwrites the oldest output, as in CUDA's circular buffer.
  void set_limit(std::size_t bytes);
  std::size_t limit() const;

  // Where flush() writes; by default the process's stdout and stderr streams, in order with what
  // the program prints by stdio.
  void set_sink(Sink sink);

  void append(Target target, std::string text);

  // Shows everything printed so far. To be called where CUDA does: launches are done when a
  // synchronisation of context, stream or event, a blocking copy, a module load or unload, or the
  // context's destruction has been waited for. Concurrent calls keep the order.
  void flush();

 private:
  struct Record {
    Target target;
    std::string text;
  };
  mutable std::mutex mutex_;
  std::mutex flush_mutex_;  // Held while showing: keeps the order between flushing threads.
  std::deque<Record> records_;
  std::size_t bytes_ = 0;
  bool showing_ = false;  // A flush has taken records and not shown all of them yet.
  std::size_t limit_ = kBytesDefault;
  Sink sink_;
};

}  // namespace gpurun::emulated
