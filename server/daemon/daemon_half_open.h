// Daemon::HalfOpen: keeps the place of one unproved connection until it proves itself or ends.
#pragma once

#include <utility>

#include "server/daemon/daemon.h"

namespace gpurun::server {

class Daemon::HalfOpen {
 public:
  HalfOpen(Daemon& daemon, HandshakeAdmission& admission, const transport::Connection* link)
      : daemon_(daemon), admission_(admission), link_(link) {}
  ~HalfOpen() { proved(); }
  HalfOpen(const HalfOpen&) = delete;
  HalfOpen& operator=(const HalfOpen&) = delete;

  // Call before the connection passes to another owner. Until then the daemon may shut it down.
  void proved() {
    if (!std::exchange(counted_, false)) return;
    admission_.leave(link_);
    daemon_.wake();
  }

 private:
  Daemon& daemon_;
  HandshakeAdmission& admission_;
  const transport::Connection* const link_;
  bool counted_ = true;
};

}  // namespace gpurun::server
