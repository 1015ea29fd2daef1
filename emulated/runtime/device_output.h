// DeviceOutput: the text that kernels have printed and that is not yet shown. The text is formatted
// on the device. It is shown in the order of printing, when the driver synchronises.
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
  // Receives one record. Called with no lock held.
  using Sink = std::function<void(Target, const std::string& text)>;

  // CU_LIMIT_PRINTF_FIFO_SIZE's default (CUDA Programming Guide, "Formatted output").
  static constexpr std::size_t kBytesDefault = std::size_t{1} << 20;

  // Output beyond `bytes` overwrites the oldest output, as in CUDA's circular buffer.
  void set_limit(std::size_t bytes);
  std::size_t limit() const;

  // Where flush() writes. The default is the process's stdout and stderr streams, in order with the
  // program's own stdio output.
  void set_sink(Sink sink);

  void append(Target target, std::string text);

  // Shows everything printed so far. The driver calls it where CUDA shows output: after a wait for
  // a context, stream or event, and after a blocking copy. CUDA also does so after a module load or
  // unload, and when the context is destroyed. Concurrent calls keep the order.
  void flush();

 private:
  struct Record {
    Target target;
    std::string text;
  };
  mutable std::mutex mutex_;
  // Held while showing: keeps the order between flushing threads.
  std::mutex flush_mutex_;
  std::deque<Record> records_;
  std::size_t bytes_ = 0;
  bool showing_ = false;  // A flush has taken records and not shown all of them yet.
  std::size_t limit_ = kBytesDefault;
  Sink sink_;
};

}  // namespace gpurun::emulated
