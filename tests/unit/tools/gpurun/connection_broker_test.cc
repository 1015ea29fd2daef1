// ConnectionBroker: a server that does not answer delays neither the reason nor gpurun's end.
#include "tools/gpurun/connection_broker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "client/attach/broker.h"
#include "tests/support/full_server.h"

namespace gpurun::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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
