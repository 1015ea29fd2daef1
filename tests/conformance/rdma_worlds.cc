// Worlds over RDMA: sockets of TCP, a queue pair beside each, and offers over the socket.
#include "tests/conformance/rdma_worlds.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <string>
#include <utility>

#include "tests/conformance/changing_end.h"
#include "tests/support/rdma_parts.h"
#include "transport/faulty/connection.h"

namespace gpurun::transport {
namespace {

// A fault of the failing world may hit the probe of the next connection.
constexpr int kTries = 3;

class RdmaWorld : public World {
 public:
  explicit RdmaWorld(const std::string& devices) {
    test::VerbsDouble::set(devices);
    Result<std::unique_ptr<Listener>> made = listen("tcp://127.0.0.1:0");
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (made.ok()) listener_ = std::move(*made);
  }
  Listener& listener() override { return *listener_; }
  Result<std::unique_ptr<Connection>> connect() override {
    return carried(transport::connect("tcp://" + listener_->address(), Deadline::in(kTestTimeout)),
                   true);
  }
  Result<std::unique_ptr<Connection>> accept() override {
    return carried(listener_->accept(Deadline::in(kTestTimeout)), false);
  }

 private:
  virtual std::unique_ptr<Connection> finished(
      std::unique_ptr<carrier::CarriedConnection> connection) {
    return connection;
  }

  Result<std::unique_ptr<Connection>> carried(Result<std::unique_ptr<Connection>> socket,
                                              bool connects) {
    if (!socket.ok()) return socket;
    Result<test::RdmaEnd> end = test::exchange(**socket, connects, kTries);
    if (!end.ok()) return end.status();
    return finished(test::carry_on(*std::move(socket), std::move(end->carrier)));
  }

  std::unique_ptr<Listener> listener_;
};

class FaultyRdmaWorld final : public RdmaWorld {
 public:
  FaultyRdmaWorld() : RdmaWorld("rdma0") {}
  std::unique_ptr<Connection> dress(std::unique_ptr<Connection> connection) override {
    return faulty::wrap(std::move(connection), faulty::Plan::harmless(test_seed() + ++made_));
  }

 private:
  std::atomic<std::uint64_t> made_{0};
};

class ChangingRdmaWorld final : public RdmaWorld {
 public:
  ChangingRdmaWorld() : RdmaWorld("rdma0") {}

 private:
  std::unique_ptr<Connection> finished(
      std::unique_ptr<carrier::CarriedConnection> connection) override {
    return make_changing_end(std::move(connection), true, test_seed() + ++made_);
  }
  std::atomic<std::uint64_t> made_{0};
};

// The queue pair that posts a random request fails.
class FailingRdmaWorld final : public RdmaWorld {
 public:
  FailingRdmaWorld() : RdmaWorld("rdma0") {}

 private:
  std::unique_ptr<Connection> finished(
      std::unique_ptr<carrier::CarriedConnection> connection) override {
    std::minstd_rand random(
        static_cast<std::minstd_rand::result_type>(test_seed() + 977 * ++made_));
    test::VerbsDouble::inject("breaks_qp posts=" +
                              std::to_string(4 + random() % (1U << (random() % 9))));
    return make_changing_end(std::move(connection), false, 0);
  }
  std::atomic<std::uint64_t> made_{0};
};

std::unique_ptr<World> make_rdma() { return std::make_unique<RdmaWorld>("rdma0"); }
std::unique_ptr<World> make_faulty() { return std::make_unique<FaultyRdmaWorld>(); }
std::unique_ptr<World> make_pvrdma() {
  return std::make_unique<RdmaWorld>("vmw_pvrdma0 profile=pvrdma");
}
std::unique_ptr<World> make_send_only() {
  return std::make_unique<RdmaWorld>("rdma0 profile=send_only");
}
std::unique_ptr<World> make_small() {
  return std::make_unique<RdmaWorld>("rdma0 inline=64 sge=1 message=4096 wr=256 cqe=256 mtu=256");
}
std::unique_ptr<World> make_changing() { return std::make_unique<ChangingRdmaWorld>(); }
std::unique_ptr<World> make_failing() { return std::make_unique<FailingRdmaWorld>(); }

}  // namespace

std::vector<WorldKind> rdma_worlds() {
  return {{"rdma", make_rdma},           {"faulty_rdma", make_faulty},
          {"rdma_pvrdma", make_pvrdma},  {"rdma_send_only", make_send_only},
          {"rdma_small", make_small},    {"changing_rdma", make_changing},
          {"failing_rdma", make_failing}};
}

}  // namespace gpurun::transport
