// ConnectionBroker: gpurun's side of client/attach/broker.h. A thread that opens connections to the
// session's server for processes that cannot reach it.
//
// A process names a kind of connection only, so the socket leads nowhere but to that server. The
// thread holds at most kAskersMax processes that have not asked yet, each for kAskWithin. One
// connection is opened at a time, because all lead to one server.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace gpurun::tools {

class ConnectionBroker {
 public:
  static constexpr std::size_t kAskersMax = 64;
  static constexpr std::chrono::seconds kAskWithin{10};

  // `socket` listens (client::listen_as_broker). `server` is "HOST:PORT", `local` the server's
  // address within its machine or "". Starts the thread. kResourceExhausted: no descriptor.
  static Result<std::unique_ptr<ConnectionBroker>> start(UniqueFd socket, std::string server,
                                                         std::string local);
  ConnectionBroker(const ConnectionBroker&) = delete;
  ConnectionBroker& operator=(const ConnectionBroker&) = delete;
  // Ends the thread. Waits for a connection that it is just opening.
  ~ConnectionBroker();

 private:
  struct Asker {
    UniqueFd fd;
    Deadline until;
  };
  ConnectionBroker(UniqueFd socket, UniqueFd stop, std::string server, std::string local);
  void run();
  void accept_one();
  void answer(int fd) const;
  int next_wait_ms() const;

  UniqueFd socket_;
  UniqueFd stop_;  // An eventfd. Readable: end.
  const std::string server_;
  const std::string local_;
  std::vector<Asker> askers_;
  std::thread thread_;
};

}  // namespace gpurun::tools
