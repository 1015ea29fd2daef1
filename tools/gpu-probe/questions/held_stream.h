// HeldStream: a kernel that occupies a stream until it is released. Other questions use it to see
// which calls wait.
#pragma once

#include <atomic>
#include <functional>

#include "driver.h"

namespace gpurun::probe {

// Occupies `stream` with a spinning kernel from construction to release().
class HeldStream {
 public:
  HeldStream(const Stage& stage, CUstream stream);
  // Lets the kernel end. Any thread with the context current may call it.
  void release();

 private:
  const Stage& stage_;
  CUstream release_stream_ = nullptr;
  CUdeviceptr flag_ = 0;
};

// Runs `work` on a thread of its own, with the stage's context current, and waits for it at most
// `milliseconds`. True: it returned in time. Otherwise calls `release` and waits again, at most 20
// s. Then it ends the process with a message (exit code 4).
bool returns_within(const Stage& stage, int milliseconds, const std::function<void()>& work,
                    const std::function<void()>& release);

}  // namespace gpurun::probe
