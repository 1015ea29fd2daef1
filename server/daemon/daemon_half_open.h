// Counts one connection that has not proved anything yet, until it has or is gone.
#pragma once

#include <utility>

#include "server/daemon/daemon.h"

namespace gpurun::server {

class Daemon::HalfOpen {
 public:
  // The place itself was taken when the connection was accepted.
  explicit HalfOpen(Daemon& daemon) : daemon_(daemon) {}
  ~HalfOpen() { proved(); }
  HalfOpen(const HalfOpen&) = delete;
  HalfOpen& operator=(const HalfOpen&) = delete;

  void proved() {
    if (!std::exchange(counted_, false)) return;
    daemon_.half_open_.fetch_sub(1);
    daemon_.wake();
  }

 private:
  Daemon& daemon_;
  bool counted_ = true;
};

}  // namespace gpurun::server
