// OpeningDescriptor: of a connection that is being opened on a thread of ours. A child that the
// program forks meanwhile has it closed, from the moment at which there is one; and who does not
// want the connection any more need not wait for its peer.
#pragma once

#include <mutex>

#include "base/descriptor_identity.h"
#include "transport/transport.h"

namespace gpurun::client {

// One connection. Any thread may give it up; the rest is the thread's that opens.
class OpeningDescriptor final : public transport::DescriptorKeeper {
 public:
  OpeningDescriptor() = default;
  // Watched no longer, unless keep_watched() was called.
  ~OpeningDescriptor() override;

  void before_change() noexcept override;
  void after_change(int fd) noexcept override;
  bool wanted() const noexcept override;

  // Ends what waits for it, now and later. Does not wait.
  void give_up() noexcept;
  // The connection is open. Its descriptor, which who called is to fork_guard::forget(); -1: the
  // transport has none.
  int keep_watched() noexcept;

 private:
  mutable std::mutex mutex_;  // Guards all below; held from before_change() to after_change().
  int fd_ = -1;
  DescriptorIdentity identity_;
  bool given_up_ = false;
};

}  // namespace gpurun::client
