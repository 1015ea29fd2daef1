// DeviceOutput: keeps what came until a thread of the program calls, which then writes it.
#include "client/session/device_output.h"

#include <utility>

#include "base/log.h"

namespace gpurun::client {

void DeviceOutput::keep(ByteView bytes, bool of_errors) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes.size() > kBytesMax - kept_.size() - kept_errors_.size()) {
    if (!full_) GPURUN_LOG(kWarning, "kernels print faster than the program reads: output is lost");
    full_ = true;
    return;
  }
  Bytes& kept = of_errors ? kept_errors_ : kept_;
  kept.insert(kept.end(), bytes.begin(), bytes.end());
  any_.store(true, std::memory_order_release);
}

void DeviceOutput::write_kept() noexcept {
  if (!any_.load(std::memory_order_acquire)) return;
  // stdout's own lock keeps the order. It comes first, because this thread may hold it already.
  flockfile(to_);
  Bytes bytes, errors;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes = std::exchange(kept_, {});
    errors = std::exchange(kept_errors_, {});
    any_.store(false, std::memory_order_release);
  }
  // What stdout cannot take is lost, as with printf.
  static_cast<void>(fwrite_unlocked(bytes.data(), 1, bytes.size(), to_));
  funlockfile(to_);
  if (!errors.empty()) static_cast<void>(std::fwrite(errors.data(), 1, errors.size(), stderr));
}

}  // namespace gpurun::client
