// Slow clients: a client that does not read delays no other. While a send to it blocks, the daemon
// accepts, lists and leases, and it drops optional messages. The sends of the test's connections
// block, whatever their deadline, until the test releases them.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "client/attach/attach.h"
#include "client/control/control_link.h"
#include "driver_abi/row.h"
#include "protocol/control/rows_agreement.h"
#include "server/daemon/daemon.h"

namespace gpurun::server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{20'000};
Deadline soon() { return Deadline::in(kLong); }

// The test's control of the daemon's connections, and its view of them.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool shut = false;
  int standing = 0;          // The number of blocked sends.
  int last_deadline_ms = 0;  // The deadline of the last send.

  void open() {
    const std::lock_guard lock(mutex);
    shut = false;
    changed.notify_all();
  }
  bool wait_for_one() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kLong, [this] { return standing == 1; });
  }
};

class GatedConnection final : public transport::Connection {
 public:
  GatedConnection(std::unique_ptr<transport::Connection> under, Gate& gate)
      : under_(std::move(under)), gate_(gate) {}
  const transport::Capabilities& capabilities() const override { return under_->capabilities(); }
  const std::string& description() const override { return under_->description(); }
  Status send(std::span<const ByteView> parts, Deadline deadline) override {
    {
      std::unique_lock lock(gate_.mutex);
      gate_.last_deadline_ms = deadline.poll_timeout_ms();
      ++gate_.standing;
      gate_.changed.notify_all();
      EXPECT_TRUE(gate_.changed.wait_for(lock, 2 * kLong, [this] { return !gate_.shut; }));
      --gate_.standing;
    }
    return under_->send(parts, deadline);
  }
  Result<std::size_t> receive(MutableBytes into, std::size_t bytes_min,
                              Deadline deadline) override {
    return under_->receive(into, bytes_min, deadline);
  }
  void shut_down() noexcept override { under_->shut_down(); }
  int fd() const noexcept override { return under_->fd(); }

 private:
  const std::unique_ptr<transport::Connection> under_;
  Gate& gate_;
};

// Gates every connection except the first. With `all` it gates each one.
class GatedListener final : public transport::Listener {
 public:
  GatedListener(std::unique_ptr<transport::Listener> under, Gate& gate, bool all)
      : under_(std::move(under)), gate_(gate), all_(all) {}
  Result<std::unique_ptr<transport::Connection>> accept(Deadline deadline) override {
    auto accepted = under_->accept(deadline);
    if (!accepted.ok() || (!all_ && std::exchange(had_first_, true))) return accepted;
    return std::unique_ptr<transport::Connection>(new GatedConnection(*std::move(accepted), gate_));
  }
  const std::string& address() const override { return under_->address(); }
  void shut_down() noexcept override { under_->shut_down(); }
  int fd() const noexcept override { return under_->fd(); }

 private:
  const std::unique_ptr<transport::Listener> under_;
  Gate& gate_;
  const bool all_;
  bool had_first_ = false;
};

class MortalWorker final : public Worker {
 public:
  explicit MortalWorker(int ended) : ended_(ended) {}
  int exit_fd() const noexcept override { return ended_; }
  void kill() noexcept override { eventfd_write(ended_, 1); }
  std::string how_it_failed() override { return "signal 11"; }

 private:
  const int ended_;
};

class Spawner final : public WorkerSpawner {
 public:
  bool fail = false;
  const UniqueFd ended{eventfd(0, EFD_CLOEXEC)};  // The end of the one worker.

  Result<std::unique_ptr<Worker>> start(WorkerOrder& order) override {
    if (fail) return Status(Code::kUnavailable, "on purpose");
    const protocol::Accept accept{protocol::kRelease, 13000, Bytes(),
                                  protocol::rows_to_tell(driver_abi::rows(), order.rows),
                                  protocol::our_features(protocol::Sender::kServer)};
    GPURUN_RETURN_IF_ERROR(protocol::send_control(*order.connections[0], accept, order.key,
                                                  protocol::Sender::kServer, 0, soon()));
    connections_ = std::move(order.connections);
    return std::unique_ptr<Worker>(new MortalWorker(ended.get()));
  }

 private:
  std::vector<std::unique_ptr<transport::Connection>> connections_;
};

class SlowClientTest : public testing::Test {
 protected:
  void start(bool all_gated) {
    auto under = transport::listen("tcp://127.0.0.1:0");
    ASSERT_TRUE(under.ok()) << under.status().to_string();
    DaemonOptions options;
    options.devices = 2;
    options.handshake_deadline = kLong;
    options.follow_deadline = std::chrono::hours(1);  // A blocked request stays blocked for ever.
    auto daemon =
        Daemon::create(std::make_unique<GatedListener>(*std::move(under), gate_, all_gated),
                       std::move(options), spawner_);
    ASSERT_TRUE(daemon.ok());
    daemon_ = *std::move(daemon);
    thread_ = std::thread([this] { EXPECT_TRUE(daemon_->run().ok()); });
  }
  void TearDown() override {
    gate_.open();
    daemon_->stop();
    thread_.join();
  }
  std::unique_ptr<client::ControlLink> link() {
    auto result = client::ControlLink::connect(daemon_->address(), {}, soon());
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? *std::move(result) : nullptr;
  }

  Gate gate_;
  Spawner spawner_;
  std::unique_ptr<Daemon> daemon_;
  std::thread thread_;
};

TEST_F(SlowClientTest, BlockedWorkerDeathNoticeDoesNotDelayOtherClients) {
  start(false);
  auto slow = link();
  ASSERT_NE(slow, nullptr);
  const auto session = slow->request_lease({});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  const auto attached = client::attach(*session, {});
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  {
    const std::lock_guard lock(gate_.mutex);
    gate_.shut = true;
  }
  eventfd_write(spawner_.ended.get(), 1);
  ASSERT_TRUE(gate_.wait_for_one());
  auto other = link();
  ASSERT_NE(other, nullptr);
  EXPECT_TRUE(other->request_lease({}).ok());
  auto lister = link();
  ASSERT_NE(lister, nullptr);
  const auto listing = lister->list();
  ASSERT_TRUE(listing.ok()) << listing.status().to_string();
  EXPECT_EQ(listing->leases, 2u);
  EXPECT_TRUE(slow->take_worker_deaths().empty());
  gate_.open();
  pollfd said = {slow->fd(), POLLIN, 0};
  ASSERT_EQ(poll(&said, 1, soon().poll_timeout_ms()), 1);
  EXPECT_TRUE(slow->lease_ended().ok());
  const auto deaths = slow->take_worker_deaths();
  ASSERT_EQ(deaths.size(), 1U);
  EXPECT_EQ(deaths[0].how, "signal 11");
}

// The link's thread cannot see that the client has gone.
TEST_F(SlowClientTest, UnnoticedClientExitDoesNotDelayOtherClients) {
  start(false);
  auto slow = link();
  ASSERT_NE(slow, nullptr);
  const auto session = slow->request_lease({});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  ASSERT_TRUE(client::attach(*session, {}).ok());
  {
    const std::lock_guard lock(gate_.mutex);
    gate_.shut = true;
  }
  eventfd_write(spawner_.ended.get(), 1);
  ASSERT_TRUE(gate_.wait_for_one());
  slow.reset();
  auto other = link();
  ASSERT_NE(other, nullptr);
  const auto granted = other->request_lease({});
  EXPECT_TRUE(granted.ok()) << granted.status().to_string();
}

TEST_F(SlowClientTest, WorkerRefusalHasShortSendDeadline) {
  start(true);
  spawner_.fail = true;
  auto control = link();
  ASSERT_NE(control, nullptr);
  const auto session = control->request_lease({});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  EXPECT_EQ(client::attach(*session, {}).status().code(), Code::kRefused);
  const std::lock_guard lock(gate_.mutex);
  EXPECT_LE(gate_.last_deadline_ms, 100);
}

}  // namespace
}  // namespace gpurun::server
