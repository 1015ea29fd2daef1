// FullServer: a server with a full queue of connections. The kernel answers no later connect to it.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace gpurun {

class FullServer {
 public:
  FullServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.get(), name, bytes), 0);
    EXPECT_EQ(listen(listener_.get(), 0), 0);
    EXPECT_EQ(getsockname(listener_.get(), name, &bytes), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    for (int i = 0; i < 4; ++i) {
      waiting_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      static_cast<void>(connect(waiting_.back().get(), name, bytes));
    }
  }
  const std::string& address() const { return address_; }  // "127.0.0.1:PORT".

 private:
  UniqueFd listener_;
  std::vector<UniqueFd> waiting_;
  std::string address_;
};

}  // namespace gpurun
