// OpeningDescriptor: the descriptor of a connection that a thread of ours is opening. If the
// program forks in the meantime, the child closes the descriptor. Another thread can give the
// connection up without waiting for its peer.
#pragma once

#include <mutex>

#include "base/descriptor_identity.h"
#include "transport/transport.h"

namespace gpurun::client {

// One connection. Any thread may call give_up(). The opening thread calls the rest.
class OpeningDescriptor final : public transport::DescriptorKeeper {
 public:
  OpeningDescriptor() = default;
  // Stops watching the descriptor, unless keep_watched() was called.
  ~OpeningDescriptor() override;

  void before_change() noexcept override;
  void after_change(int fd) noexcept override;
  bool wanted() const noexcept override;

  // Ends current and later waits for the connection. Does not block.
  void give_up() noexcept;
  // The connection is open. Returns its descriptor, which the caller must pass to
  // fork_guard::forget(). -1: the transport has none.
  int keep_watched() noexcept;

 private:
  mutable std::mutex mutex_;  // Guards all below. Held from before_change() to after_change().
  int fd_ = -1;
  DescriptorIdentity identity_;
  bool given_up_ = false;
};

}  // namespace gpurun::client
