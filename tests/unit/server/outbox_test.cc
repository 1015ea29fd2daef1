// Protects: who says goodbye may hang up at once. Another thread may be sending, and then sends the
// goodbye too; a goodbye that returned before would be lost, and with it why the session ended.
#include "server/worker/outbox.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>

#include "protocol/frame.h"

namespace gpurun::server {
namespace {

using namespace std::chrono_literals;

// Its first send ends when the test says so.
class SlowConnection : public transport::Connection {
 public:
  const transport::Capabilities& capabilities() const override { return capabilities_; }
  const std::string& description() const override { return description_; }
  Status send(std::span<const ByteView> parts, Deadline) override {
    if (!first_.exchange(true)) {
      inside.set_value();
      go.get_future().wait();
    }
    for (const ByteView part : parts) {
      sent.append(reinterpret_cast<const char*>(part.data()), part.size());
    }
    return {};
  }
  Result<std::size_t> receive(MutableBytes, std::size_t, Deadline) override {
    return Status(Code::kPeerGone, "nobody");
  }
  void shut_down() noexcept override {}

  std::promise<void> inside, go;
  std::string sent;

 private:
  transport::Capabilities capabilities_;
  std::string description_ = "slow";
  std::atomic<bool> first_{false};
};

TEST(Outbox, AGoodbyeIsSentWhenItReturns) {
  SlowConnection connection;
  Outbox outbox(connection, 30s);
  std::thread sending([&] { outbox.heartbeat(); });
  connection.inside.get_future().wait();
  std::promise<void> returned;
  std::thread leaving([&] {
    outbox.goodbye("because of this");
    returned.set_value();
  });
  std::future<void> over = returned.get_future();
  EXPECT_EQ(over.wait_for(50ms), std::future_status::timeout);
  connection.go.set_value();
  leaving.join();
  const bool said = connection.sent.find("because of this") != std::string::npos;
  sending.join();
  EXPECT_TRUE(said);
}

}  // namespace
}  // namespace gpurun::server
