// Counts one connection that has not proved anything yet, until it has or is gone.
#pragma once

#include <utility>

#include "server/daemon/daemon.h"

namespace gpurun::server {

class Daemon::HalfOpen {
 public:
  // The place itself was taken when the connection was accepted.
  HalfOpen(Daemon& daemon, transport::Connection* link) : daemon_(daemon), link_(link) {}
  ~HalfOpen() { proved(); }
  HalfOpen(const HalfOpen&) = delete;
  HalfOpen& operator=(const HalfOpen&) = delete;

  void proved() {
    if (!std::exchange(counted_, false)) return;
    daemon_.forget_stranger(link_);
    daemon_.half_open_.fetch_sub(1);
    daemon_.wake();
  }

 private:
  Daemon& daemon_;
  transport::Connection* const link_;  // Only a name: it may have been passed on.
  bool counted_ = true;
};

}  // namespace gpurun::server
