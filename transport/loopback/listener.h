// LoopbackListener: a listener in one process, for tests. connect() of the same object is the other
// side.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "transport/transport.h"

namespace gpurun::transport::loopback {

// Any thread.
class LoopbackListener final : public Listener {
 public:
  Result<std::unique_ptr<Connection>> accept(Deadline deadline) override;
  const std::string& address() const override { return address_; }
  void shut_down() noexcept override;

  // The client's side. kUnavailable after shut_down().
  Result<std::unique_ptr<Connection>> connect();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Connection>> waiting_;
  bool stopped_ = false;
  std::string address_ = "loopback";
};

}  // namespace gpurun::transport::loopback
