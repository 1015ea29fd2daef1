// ConnectionBroker: gpurun's side of client/attach/broker.h. A thread that opens connections to the
// session's server for processes that cannot reach it.
//
// A process names a kind of connection only, so the socket leads nowhere but to that server. The
// thread holds at most kAskersMax processes that have not asked yet, each for kAskWithin. One
// connection is opened at a time, because all lead to one server.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "transport/transport.h"

namespace gpurun::tools {

class ConnectionBroker {
 public:
  static constexpr std::size_t kAskersMax = 64;
  static constexpr std::chrono::seconds kAskWithin{10};

  // `socket` listens (client::listen_as_broker). `server` is "HOST:PORT", `local` the server's
  // address within its machine or "". Starts the thread, which has the caller's signal mask.
  // kResourceExhausted: no descriptor or no thread.
  static Result<std::unique_ptr<ConnectionBroker>> start(UniqueFd socket, std::string server,
                                                         std::string local);
  ConnectionBroker(const ConnectionBroker&) = delete;
  ConnectionBroker& operator=(const ConnectionBroker&) = delete;
  // Ends the thread. Does not wait for a server.
  ~ConnectionBroker();

 private:
  struct Asker {
    UniqueFd fd;
    Deadline until;
  };
  // The descriptor that is just being connected, which stop() shuts down.
  class Opening final : public transport::DescriptorKeeper {
   public:
    void before_change() noexcept override { mutex_.lock(); }
    void after_change(int fd) noexcept override {
      fd_ = fd;
      mutex_.unlock();
    }
    bool wanted() const noexcept override;
    void stop() noexcept;
    void has_ended() noexcept;

   private:
    mutable std::mutex mutex_;
    int fd_ = -1;
    bool stopped_ = false;
  };
  ConnectionBroker(UniqueFd socket, UniqueFd stop, std::string server, std::string local);
  void run();
  void accept_one();
  void answer(int fd);
  int next_wait_ms() const;

  UniqueFd socket_;
  UniqueFd stop_;  // An eventfd. Readable: end.
  const std::string server_;
  const std::string local_;
  std::vector<Asker> askers_;  // Oldest first.
  Opening opening_;
  std::thread thread_;
};

}  // namespace gpurun::tools
