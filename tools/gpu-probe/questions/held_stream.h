// A kernel that occupies a stream until it is let go: the means by which other questions see what
// waits for what.
#pragma once

#include <atomic>
#include <functional>

#include "driver.h"

namespace gpurun::probe {

// Occupies `stream` with a spinning kernel from construction to release().
class HeldStream {
 public:
  HeldStream(const Stage& stage, CUstream stream);
  // Lets the kernel end; it may be called from any thread with the context current.
  void release();

 private:
  const Stage& stage_;
  CUstream release_stream_ = nullptr;
  CUdeviceptr flag_ = 0;
};

// Runs `work` on a thread of its own, with the stage's context current, and waits for it at most
// `milliseconds`. True when it came back in time. Otherwise `release` is called, and the thread is
// waited for again, at most 20 s; then the process ends with a message (exit code 4).
bool returns_within(const Stage& stage, int milliseconds, const std::function<void()>& work,
                    const std::function<void()>& release);

}  // namespace gpurun::probe
