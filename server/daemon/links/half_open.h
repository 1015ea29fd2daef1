// HalfOpen: keeps the place of one unproved connection until it proves itself or ends.
//
// The thread of that connection.
#pragma once

#include <utility>

#include "server/daemon/links/handshake_admission.h"
#include "server/daemon/links/loop_wake.h"

namespace gpurun::server {

class HalfOpen {
 public:
  HalfOpen(HandshakeAdmission& admission, const transport::Connection* link, const LoopWake& wake)
      : admission_(admission), link_(link), wake_(wake) {}
  ~HalfOpen() { proved(); }
  HalfOpen(const HalfOpen&) = delete;
  HalfOpen& operator=(const HalfOpen&) = delete;

  // Call before the connection passes to another owner. Until then the daemon may shut it down.
  void proved() {
    if (!std::exchange(counted_, false)) return;
    admission_.leave(link_);
    wake_.wake();
  }

 private:
  HandshakeAdmission& admission_;
  const transport::Connection* const link_;
  const LoopWake& wake_;
  bool counted_ = true;
};

}  // namespace gpurun::server
