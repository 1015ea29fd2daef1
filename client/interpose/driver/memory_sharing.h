// MemorySharing: the start of sharing memory with another process, which may learn of this
// process's calls outside the log (docs/adr/0018), or with host code that sees what earlier work
// has written (docs/adr/0045).
#pragma once

#include "client/interpose/call/forward.h"

namespace gpurun::client::interpose {

// No call is answered early while this object lives, or longer after keep(). One thread.
class MemorySharing {
 public:
  explicit MemorySharing(const EntryContext& here);
  ~MemorySharing();
  MemorySharing(const MemorySharing&) = delete;
  MemorySharing& operator=(const MemorySharing&) = delete;

  // Waits until all calls that were answered early are done. Returns 0, or the failure of a call.
  int settle() const;
  // Extends the sharing until Session::unshare_memory().
  void keep() { kept_ = true; }

 private:
  const EntryContext& here_;
  bool kept_ = false;
};

}  // namespace gpurun::client::interpose
