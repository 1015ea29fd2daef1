// ConnectionBroker: a server that does not answer delays neither the reason nor gpurun's end.
#include "tools/gpurun/connection_broker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "client/attach/broker.h"

namespace gpurun::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A server with a full queue of connections: the kernel drops the requests of later ones.
class FullServer {
 public:
  FullServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_.get(), raw, bytes), 0);
    EXPECT_EQ(listen(listener_.get(), 0), 0);
    EXPECT_EQ(getsockname(listener_.get(), raw, &bytes), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    for (int i = 0; i < 4; ++i) {
      waiting_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)connect(waiting_.back().get(), raw, bytes);
    }
  }
  const std::string& address() const { return address_; }

 private:
  UniqueFd listener_;
  std::vector<UniqueFd> waiting_;
  std::string address_;
};

class ConnectionBrokerTest : public testing::Test {
 protected:
  ConnectionBrokerTest()
      : folder_(testing::TempDir() + "connection_broker_" + std::to_string(getpid())) {
    mkdir(folder_.c_str(), 0700);
    const UniqueFd folder(open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    auto socket = client::listen_as_broker(folder.get(), "connect", path());
    EXPECT_TRUE(socket.ok()) << socket.status().to_string();
    auto broker = ConnectionBroker::start(*std::move(socket), server_.address(), "");
    EXPECT_TRUE(broker.ok()) << broker.status().to_string();
    broker_ = *std::move(broker);
  }
  ~ConnectionBrokerTest() override {
    unlink(path().c_str());
    rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/connect"; }

  FullServer server_;
  std::string folder_;
  std::unique_ptr<ConnectionBroker> broker_;
};

TEST_F(ConnectionBrokerTest, ReasonNamesServerWithinTimeOfProcess) {
  const auto begin = std::chrono::steady_clock::now();
  const auto made = client::connect_by_broker(path(), client::BrokerKind::kTcp,
                                              Deadline::in(milliseconds(200)), {});
  EXPECT_EQ(made.status().code(), Code::kUnavailable) << made.status().to_string();
  EXPECT_NE(made.status().message().find(server_.address()), std::string::npos)
      << made.status().message();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
}

TEST_F(ConnectionBrokerTest, EndDoesNotWaitForServer) {
  Status made;
  std::thread process([&] {
    made =
        client::connect_by_broker(path(), client::BrokerKind::kTcp, Deadline::in(seconds(60)), {})
            .status();
  });
  // Another process gets no answer at all while the broker tries for the first.
  Status second;
  while (second.code() != Code::kDeadline) {
    second = client::connect_by_broker(path(), client::BrokerKind::kTcp,
                                       Deadline::in(milliseconds(100)), {})
                 .status();
    ASSERT_FALSE(second.ok());
  }
  const auto begin = std::chrono::steady_clock::now();
  broker_.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(5));
  process.join();
  EXPECT_FALSE(made.ok());
}

}  // namespace
}  // namespace gpurun::tools
