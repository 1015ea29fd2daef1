// DaemonTest: a daemon in this process, over TCP, with workers that are not processes. Every wait
// is bounded.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/attach/attach.h"
#include "client/control/control_link.h"
#include "driver_abi/row.h"
#include "protocol/auth/token_file.h"
#include "protocol/control/control.h"
#include "protocol/control/rows_agreement.h"
#include "server/daemon/daemon.h"

namespace gpurun::server {

using std::chrono::milliseconds;

constexpr milliseconds kLong{20'000};
inline Deadline soon() { return Deadline::in(kLong); }

// Adds a user to the file of tokens `path`. Returns the user's token.
inline protocol::Token make_user(const std::string& path, const std::string& user) {
  const protocol::Token token = *protocol::make_token(std::nullopt);
  EXPECT_TRUE(protocol::update_token_file(path, [&](auto* entries) {
                protocol::TokenEntry entry;
                entry.id = token.id;
                entry.user = user;
                entry.check = protocol::token_check(token.secret);
                entries->push_back(entry);
                return Status();
              }).ok());
  return token;
}

// Ends the lease of `link`. Returns when its GPUs are free.
inline void end_lease(const client::ControlLink& link) {
  ASSERT_EQ(shutdown(link.fd(), SHUT_WR), 0);
  char dropped[256];
  while (recv(link.fd(), dropped, sizeof dropped, 0) > 0) {
  }
}

// The test's view of the workers, from its own thread.
struct Workers {
  std::mutex mutex;
  std::condition_variable changed;
  int started = 0;      // Workers that got a session.
  int handed_over = 0;  // Of these, the ones that were prepared.
  int prepared = 0;
  bool prepares = false;             // Workers may be started before their session.
  int spares = 0;                    // All workers that were started without a lease.
  int assigned = 0;                  // Of these, the ones that got a lease.
  int waiting_spares = 0;            // Spares that were started and not destroyed.
  bool no_spares = false;            // No spare can be started.
  bool only_without_spares = false;  // No other worker can be started beside spares.
  bool refuse_sessions = false;      // Started workers refuse sessions.
  bool refuse_joining = false;       // Workers refuse further connections.
  int killed = 0;
  bool fail = false;    // The next start fails.
  bool linger = false;  // A killed worker does not end before let_go().
  std::vector<int> devices;
  User user;  // Of the last session.
  std::vector<driver_abi::Row> rows{driver_abi::rows().begin(), driver_abi::rows().end()};
  std::optional<std::vector<protocol::RowHash>> told;  // In place of the answer of `rows`.
  std::size_t rows_told = 0;                           // Sent to the last client.
  protocol::Features features = protocol::our_features(protocol::Sender::kServer);
  protocol::Features asked;    // Requested by the last client.
  std::vector<int> lingering;  // Descriptors to make readable.
  int waiting = -1;            // The exit descriptor of the last prepared worker.
  std::vector<std::unique_ptr<transport::Connection>> connections;  // Of the last session.

  bool wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kLong, condition);
  }
  void let_go() {
    const std::lock_guard lock(mutex);
    for (const int fd : lingering) eventfd_write(fd, 1);
    lingering.clear();
  }
};

inline Status give_session(Workers& workers, WorkerOrder& order) {
  const protocol::Accept accept{
      "0.0.9", 13000, Bytes(100, std::byte{7}),
      workers.told ? *workers.told : protocol::rows_to_tell(workers.rows, order.rows),
      workers.features};
  GPURUN_RETURN_IF_ERROR(protocol::send_control(*order.connections[0], accept, order.key,
                                                protocol::Sender::kServer, 0, soon()));
  workers.rows_told = accept.rows.size();
  ++workers.started;
  workers.devices = order.devices;
  workers.user = order.user;
  workers.asked = order.features;
  workers.connections = std::move(order.connections);
  workers.changed.notify_all();
  return Status();
}

class FakeWorker final : public Worker {
 public:
  explicit FakeWorker(Workers& workers, bool spare = false)
      : workers_(workers), spare_(spare), ended_(eventfd(0, EFD_CLOEXEC)) {}
  // The thread that made the descriptor readable may still hold the lock.
  ~FakeWorker() override {
    const std::lock_guard lock(workers_.mutex);
    if (spare_) --workers_.waiting_spares;
    workers_.changed.notify_all();
  }
  int exit_fd() const noexcept override { return ended_.get(); }
  void kill() noexcept override {
    const std::lock_guard lock(workers_.mutex);
    ++workers_.killed;
    if (workers_.linger) {
      workers_.lingering.push_back(ended_.get());
    } else {
      eventfd_write(ended_.get(), 1);
    }
    workers_.changed.notify_all();
  }
  std::string how_it_failed() override { return "signal 9"; }
  Status assign(const std::vector<int>& devices, bool) override {
    const std::lock_guard lock(workers_.mutex);
    workers_.devices = devices;
    ++workers_.assigned;
    workers_.changed.notify_all();
    return {};
  }
  Status hand_over(WorkerOrder& order) override {
    const std::lock_guard lock(workers_.mutex);
    if (workers_.refuse_sessions) return Status(Code::kPeerGone, "on purpose");
    ++workers_.handed_over;
    return give_session(workers_, order);
  }
  Status join(ExtraBulkConnection& joining) override {
    const std::lock_guard lock(workers_.mutex);
    if (workers_.refuse_joining) return Status(Code::kUnavailable, "on purpose");
    GPURUN_RETURN_IF_ERROR(protocol::send_control(*joining.connection, protocol::Joined{3},
                                                  joining.key, protocol::Sender::kServer,
                                                  joining.index, soon()));
    workers_.connections.push_back(std::move(joining.connection));
    workers_.changed.notify_all();
    return {};
  }

 private:
  Workers& workers_;
  const bool spare_;
  const UniqueFd ended_;
};

class FakeSpawner final : public WorkerSpawner {
 public:
  explicit FakeSpawner(Workers& workers) : workers_(workers) {}
  Result<std::unique_ptr<Worker>> start(WorkerOrder& order) override {
    const std::lock_guard lock(workers_.mutex);
    if (workers_.fail) return Status(Code::kUnavailable, "on purpose");
    GPURUN_RETURN_IF_ERROR(give_session(workers_, order));
    return std::unique_ptr<Worker>(new FakeWorker(workers_));
  }
  Result<std::unique_ptr<Worker>> prepare(const std::vector<int>& devices) override {
    const std::lock_guard lock(workers_.mutex);
    if (!workers_.prepares) return Status(Code::kUnavailable, "on purpose");
    if (workers_.only_without_spares && workers_.waiting_spares > 0) {
      return Status(Code::kResourceExhausted, "on purpose");
    }
    ++workers_.prepared;
    workers_.devices = devices;
    auto worker = std::make_unique<FakeWorker>(workers_);
    workers_.waiting = worker->exit_fd();
    workers_.changed.notify_all();
    return std::unique_ptr<Worker>(std::move(worker));
  }
  Result<std::unique_ptr<Worker>> spare() override {
    const std::lock_guard lock(workers_.mutex);
    if (workers_.no_spares) return Status(Code::kUnavailable, "on purpose");
    ++workers_.spares;
    ++workers_.waiting_spares;
    workers_.changed.notify_all();
    return std::unique_ptr<Worker>(new FakeWorker(workers_, true));
  }

 private:
  Workers& workers_;
};

inline Bytes secret() { return Bytes(16, std::byte{0x5a}); }

class DaemonTest : public testing::Test {
 protected:
  void start(DaemonOptions options) {
    Result<std::unique_ptr<transport::Listener>> listener = transport::listen("tcp://127.0.0.1:0");
    ASSERT_TRUE(listener.ok()) << listener.status().to_string();
    options.secret = secret();
    Result<std::unique_ptr<Daemon>> daemon =
        Daemon::create(*std::move(listener), std::move(options), spawner_);
    ASSERT_TRUE(daemon.ok());
    daemon_ = *std::move(daemon);
    thread_ = std::thread([this] { EXPECT_TRUE(daemon_->run().ok()); });
  }
  void start(unsigned devices) {
    DaemonOptions options;
    options.devices = devices;
    options.handshake_deadline = kLong;
    options.overtaken_deadline = milliseconds(1);  // For leases that do not end meanwhile.
    start(std::move(options));
  }
  void TearDown() override {
    daemon_->stop();
    thread_.join();
    daemon_.reset();  // The daemon writes what it still holds. A test's folder goes afterwards.
  }

  std::unique_ptr<client::ControlLink> link(const Bytes& with = secret()) {
    auto result = client::ControlLink::connect(daemon_->address(), with, soon());
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? *std::move(result) : nullptr;
  }
  static client::LeaseRequest ask(unsigned devices, milliseconds wait = milliseconds(0)) {
    client::LeaseRequest request;
    request.devices = devices;
    request.wait = wait;
    return request;
  }
  std::unique_ptr<transport::Connection> dial() {
    auto connection = transport::connect("tcp://" + daemon_->address(), soon());
    EXPECT_TRUE(connection.ok());
    return *std::move(connection);
  }
  // The Attach message of a session, as the client library would send it.
  static protocol::Attach words(const client::SessionData& session, std::uint8_t id) {
    protocol::Attach attach;
    attach.version = protocol::our_version(protocol::Sender::kClient);
    attach.rows = protocol::rows_digest(driver_abi::rows());
    attach.lease = session.lease;
    attach.ticket = session.ticket;
    attach.session.fill(id);
    attach.nonce.fill(id);
    attach.count = 2;
    return attach;
  }
  static void say(transport::Connection& connection, const client::SessionData& session,
                  protocol::Attach attach, std::uint16_t index) {
    attach.index = index;
    const protocol::Key key =
        protocol::link_key(bytes_of(session.ticket_key), protocol::Link::kAttach, session.challenge,
                           attach.nonce, attach.session);
    EXPECT_TRUE(
        protocol::send_control(connection, attach, key, protocol::Sender::kClient, index, soon())
            .ok());
  }
  // Returns the refusal that arrives. Empty if something else arrives.
  static std::string refusal(transport::Connection& connection) {
    const auto frame = protocol::receive_control(connection, limits::kFrameBytesMax, soon());
    if (!frame.ok()) return {};
    const auto message = protocol::decode(frame->payload);
    const auto* refused = message.ok() ? std::get_if<protocol::Refused>(&*message) : nullptr;
    return refused == nullptr ? std::string() : refused->reason;
  }
  static bool closed(transport::Connection& connection) {
    std::byte byte;
    return connection.receive({&byte, 1}, 1, soon()).status().code() == Code::kPeerGone;
  }

  Workers workers_;
  FakeSpawner spawner_{workers_};
  std::unique_ptr<Daemon> daemon_;
  std::thread thread_;
};

}  // namespace gpurun::server
