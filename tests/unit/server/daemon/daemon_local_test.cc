// Sessions within one machine: which clients are told the local socket, and how they share memory
// over it. A client that cannot use it goes by TCP, or gets the reason.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <future>
#include <thread>

#include "base/close_without_linger.h"
#include "base/descriptor_message.h"
#include "base/random.h"
#include "protocol/control/local_address.h"
#include "tests/unit/server/daemon/daemon_under_test.h"
#include "transport/shm/connection.h"

namespace gpurun::server {
namespace {

using client::TransportKind;

class LocalSocketTest : public DaemonTest {
 protected:
  static std::string some_address() {
    return protocol::local_address(*random_array<protocol::Id>());
  }
  void SetUp() override {
    serve_at(some_address());
    auto session = control_->request_lease(ask(1));
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    session_ = *std::move(session);
  }
  void serve_at(const std::string& url) {
    auto listener = transport::listen(url);
    ASSERT_TRUE(listener.ok()) << listener.status().to_string();
    local_ = *std::move(listener);
    DaemonOptions options;
    options.devices = 1;
    options.handshake_deadline = 3 * kLong;  // No connection here ends by it.
    options.local = local_;
    start(std::move(options));
    control_ = link();
  }
  Result<client::Attached> attach(std::vector<TransportKind> transports) {
    client::AttachOptions options;
    options.transports = std::move(transports);
    options.more_later = true;
    return client::attach(session_, options);
  }
  // As the worker would share it.
  std::unique_ptr<transport::Connection> workers_end(std::size_t index) {
    const std::lock_guard lock(workers_.mutex);
    const Status shared = transport::shm::share_offered(workers_.connections[index], soon());
    EXPECT_TRUE(shared.ok()) << shared.to_string();
    return std::move(workers_.connections[index]);
  }
  static void expect_they_talk(transport::Connection& one, transport::Connection& other) {
    for (auto [from, to] : {std::pair(&one, &other), std::pair(&other, &one)}) {
      const std::byte sent{42};
      const ByteView part(&sent, 1);
      ASSERT_TRUE(from->send({&part, 1}, soon()).ok());
      std::byte got{};
      ASSERT_TRUE(to->receive({&got, 1}, 1, soon()).ok());
      EXPECT_EQ(got, sent);
    }
  }

  std::shared_ptr<transport::Listener> local_;
  std::unique_ptr<client::ControlLink> control_;
  client::SessionData session_;
  const std::string nowhere_ = some_address();
};

// Nothing forks here, and all connections are wanted.
class AllWanted final : public transport::DescriptorKeeper {
  void before_change() noexcept override {}
  void after_change(int) noexcept override {}
  bool wanted() const noexcept override { return true; }
};

TEST_F(LocalSocketTest, AttachedClientSharesMemoryWithWorker) {
  EXPECT_EQ(session_.local, local_->address());
  const auto attached = attach(client::all_transports());
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_EQ(attached->transport, "shared memory, not encrypted");
  EXPECT_TRUE(attached->rejected.empty());
  EXPECT_TRUE(attached->channels.log->capabilities().shares_memory);
  EXPECT_TRUE(attached->channels.bulk[0]->capabilities().shares_memory);
  expect_they_talk(*attached->channels.log, *workers_end(0));
  expect_they_talk(*attached->channels.bulk[0], *workers_end(1));
}

TEST_F(LocalSocketTest, ExtraBulkConnectionSharesMemoryWithWorker) {
  const auto attached = attach(client::all_transports());
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  AllWanted keeper;
  const auto joined = attached->channels.more->open(keeper);
  ASSERT_TRUE(joined.ok()) << joined.status().to_string();
  EXPECT_TRUE(joined->connection->capabilities().shares_memory);
  expect_they_talk(*joined->connection, *workers_end(2));
}

TEST_F(LocalSocketTest, FollowsConfiguredTransportOrder) {
  const auto by_tcp = attach({TransportKind::kTcp, TransportKind::kSharedMemory});
  ASSERT_TRUE(by_tcp.ok()) << by_tcp.status().to_string();
  EXPECT_EQ(by_tcp->transport, "TCP, not encrypted");
  EXPECT_FALSE(by_tcp->channels.log->capabilities().shares_memory);
}

// The server of another machine has named a socket of that machine.
TEST_F(LocalSocketTest, UnreachableSocketFallsBackToTcpWithReason) {
  session_.local = nowhere_;
  const auto attached = attach(client::all_transports());
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_EQ(attached->transport, "TCP, not encrypted");
  ASSERT_EQ(attached->rejected.size(), 2U);
  EXPECT_EQ(attached->rejected[0].name, "shared memory");
  EXPECT_EQ(attached->rejected[0].reason,
            "the server is not on this machine, or out of reach here: connecting to " +
                session_.local + ": Connection refused");
  EXPECT_EQ(attached->rejected[1].name, "RDMA");
  EXPECT_EQ(attached->rejected[1].reason, client::kNoFabricTrusted);
  expect_they_talk(*attached->channels.log, *workers_end(0));
  const auto only = attach({TransportKind::kSharedMemory});
  ASSERT_FALSE(only.ok());
  EXPECT_EQ(only.status().code(), Code::kUnavailable);
  EXPECT_NE(only.status().message().find("GPURUN_TRANSPORTS allows shared memory only"),
            std::string::npos)
      << only.status().message();
}

// A local socket with a full queue that accepts nothing. With `room` one more connection fits.
class FullDoor {
 public:
  explicit FullDoor(const std::string& url, bool room = false) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    const std::string path = url.substr(std::string("unix:").size());
    std::memcpy(name.sun_path + 1, path.data(), path.size());  // An abstract name begins with a
                                                               // zero byte.
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
    const auto* address = reinterpret_cast<const sockaddr*>(&name);
    EXPECT_EQ(bind(door_.get(), address, bytes), 0);
    EXPECT_EQ(listen(door_.get(), 0), 0);
    if (room) return;  // The kernel counts room for one.
    do {
      waiting_.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    } while (connect(waiting_.back().get(), address, bytes) == 0);
    EXPECT_EQ(errno, EAGAIN);
  }
  void await_another() const {
    pollfd ready = {door_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, static_cast<int>(kLong.count())), 1);
  }

 private:
  const UniqueFd door_{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::vector<UniqueFd> waiting_;
};

TEST_F(LocalSocketTest, FullSocketFallsBackToTcpInTime) {
  session_.local = nowhere_;
  const FullDoor door(session_.local);
  client::AttachOptions options;
  options.connect_deadline = options.deadline = kLong;
  options.door_patience = std::chrono::milliseconds(20);
  const auto start = std::chrono::steady_clock::now();
  const auto attached = client::attach(session_, options);
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong / 2);
  EXPECT_EQ(attached->transport, "TCP, not encrypted");
  ASSERT_FALSE(attached->rejected.empty());
  EXPECT_EQ(attached->rejected[0].name, "shared memory");
  expect_they_talk(*attached->channels.log, *workers_end(0));
}

// A client that trusted this name would connect to anything that the server names.
class LocalSocketNameTest : public LocalSocketTest {
 protected:
  void SetUp() override {
    serve_at("unix:somebody-" + some_address().substr(std::string("unix:gpurun-").size()));
  }
};

TEST_F(LocalSocketNameTest, ClientRejectsForeignSocketName) {
  const auto session = control_->request_lease(ask(1));
  EXPECT_EQ(session.status().code(), Code::kProtocol);
  EXPECT_NE(session.status().message().find("a local socket that is not gpurund's"),
            std::string::npos)
      << session.status().message();
}

// The first connection was accepted. The others use the same socket, as soon as there is room.
TEST_F(LocalSocketTest, AcceptedClientKeepsWaitingForMoreConnections) {
  session_.local = nowhere_;
  auto door = std::make_unique<FullDoor>(session_.local, true);
  client::AttachOptions options;
  options.connect_deadline = options.deadline = kLong;
  options.door_patience = std::chrono::milliseconds(20);
  auto attached = std::async(std::launch::async, [&] { return client::attach(session_, options); });
  door->await_another();
  EXPECT_EQ(attached.wait_for(5 * options.door_patience), std::future_status::timeout);
  door.reset();
  const Status gone = attached.get().status();
  EXPECT_EQ(gone.code(), Code::kPeerGone);
  EXPECT_NE(gone.message().find("Connection refused"), std::string::npos) << gone.message();
}

// With no other path to the server the client need not hurry.
TEST_F(LocalSocketTest, OnlyTransportWaitsUntilConnectDeadline) {
  session_.local = nowhere_;
  const FullDoor door(session_.local);
  client::AttachOptions options;
  options.transports = {TransportKind::kSharedMemory};
  options.connect_deadline = options.deadline = std::chrono::milliseconds(200);
  options.door_patience = std::chrono::milliseconds(1);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(client::attach(session_, options).status().code(), Code::kUnavailable);
  EXPECT_GE(std::chrono::steady_clock::now() - start, options.connect_deadline);
}

// The message describes the path that the user preferred.
TEST_F(LocalSocketTest, ErrorNamesUnreachableServer) {
  session_.local = nowhere_;
  auto nobody = transport::listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(nobody.ok());
  session_.servers = {(*nobody)->address()};
  nobody->reset();
  for (const auto& order :
       {std::vector{TransportKind::kTcp, TransportKind::kSharedMemory}, client::all_transports()}) {
    const auto attached = attach(order);
    EXPECT_EQ(attached.status().code(), Code::kUnavailable);
    EXPECT_NE(attached.status().message().find(session_.servers[0] + ": Connection refused"),
              std::string::npos)
        << attached.status().message();
  }
}

// The user asked for encryption, so the session does not use shared memory.
TEST_F(LocalSocketTest, EncryptedSessionRefusesSharedMemory) {
  session_.encrypted = true;
  const auto only = attach({TransportKind::kSharedMemory});
  EXPECT_NE(only.status().message().find("the session is encrypted"), std::string::npos)
      << only.status().message();
}

// Only the client and the server use this path. It requires the same proof as TCP.
TEST_F(LocalSocketTest, RequiresTicketProof) {
  session_.ticket_key.fill(1);
  const auto attached = attach({TransportKind::kSharedMemory});
  EXPECT_EQ(attached.status().code(), Code::kRefused) << attached.status().to_string();
  EXPECT_NE(attached.status().message().find("not proved"), std::string::npos)
      << attached.status().message();
}

TEST_F(LocalSocketTest, RejectsTlsHandshake) {
  auto stranger = transport::connect(local_->address(), soon());
  ASSERT_TRUE(stranger.ok()) << stranger.status().to_string();
  const std::byte handshake{0x16};
  const ByteView part(&handshake, 1);
  ASSERT_TRUE((*stranger)->send({&part, 1}, soon()).ok());
  EXPECT_TRUE(closed(**stranger));
}

// A TCP socket with a close that blocks for a minute, because its other end reads nothing.
class Lingering {
 public:
  Lingering() {
    auto listener = transport::listen("tcp://127.0.0.1:0");
    auto near = transport::connect("tcp://" + (*listener)->address(), soon());
    auto far = (*listener)->accept(soon());
    EXPECT_TRUE(near.ok() && far.ok());
    far_ = *std::move(far);
    constexpr linger kMinute = {1, 60};
    EXPECT_EQ(setsockopt((*near)->fd(), SOL_SOCKET, SO_LINGER, &kMinute, sizeof kMinute), 0);
    const Bytes much(std::size_t{16} << 20);
    const ByteView part(much);
    for (;;) {
      const auto went = (*near)->send_some({&part, 1});
      EXPECT_TRUE(went.ok());
      if (!went.ok() || *went == 0) break;
    }
    fd_.reset(dup((*near)->fd()));
  }
  UniqueFd take() { return std::move(fd_); }

 private:
  std::unique_ptr<transport::Connection> far_;
  UniqueFd fd_;
};

// The last close of a lingering descriptor blocks for as long as its sender likes. None of our
// closes does, whether the descriptor was received or goes with a closed socket.
TEST_F(LocalSocketTest, LingeringDescriptorsDoNotBlockDaemon) {
  std::vector<std::unique_ptr<Lingering>> lingering;
  // Sends a descriptor behind `words` bytes, of which 40 make gpurund hang up. True: it was sent.
  const auto knock = [&](std::size_t words) {
    auto stranger = transport::connect(local_->address(), soon());
    EXPECT_TRUE(stranger.ok()) << stranger.status().to_string();
    lingering.push_back(std::make_unique<Lingering>());
    UniqueFd sent = lingering.back()->take();
    const int fd = sent.get();
    const Bytes garbage(words, std::byte{'x'});
    const ByteView part(garbage);
    EXPECT_TRUE((*stranger)->send({&part, 1}, soon()).ok());
    if (send_message((*stranger)->fd(), byte_view("y", 1), {&fd, 1}, Wait::kNever).ok()) {
      close_without_linger(std::move(sent));  // Ours may be the last close, if gpurund was quick.
      return true;
    }
    let_not_linger(sent);  // It still belongs to this process.
    return false;
  };
  EXPECT_TRUE(knock(0));
  bool unread = false;
  for (int tries = 0; tries < 100 && !unread; ++tries) unread = knock(40);
  EXPECT_TRUE(unread);
  const auto end = std::chrono::steady_clock::now() + kLong;
  while (daemon_->half_open() != 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_EQ(daemon_->half_open(), 0U);
  const auto start = std::chrono::steady_clock::now();
  end_lease(*control_);
  daemon_->stop();
  thread_.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong);
  thread_ = std::thread([] {});  // TearDown() joins it.
}

// A relay that delays, meters or forwards the link does so for a reason, so the session uses the
// same path.
TEST_F(LocalSocketTest, ClientBehindRelayIsNotOfferedSocket) {
  auto relay = transport::listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(relay.ok());
  std::thread between([&] {
    auto near = (*relay)->accept(soon());
    auto far = transport::connect("tcp://" + daemon_->address(), soon());
    if (!near.ok() || !far.ok()) return;
    const auto pass = [](transport::Connection& from, transport::Connection& to) {
      Bytes some(4096);
      for (;;) {
        const auto got = from.receive(some, 1, Deadline::never());
        if (!got.ok()) return to.shut_down();
        const ByteView part = ByteView(some).first(*got);
        if (!to.send({&part, 1}, soon()).ok()) return from.shut_down();
      }
    };
    std::thread back([&] { pass(**far, **near); });
    pass(**near, **far);
    back.join();
  });
  end_lease(*control_);
  {
    auto link = client::ControlLink::connect((*relay)->address(), secret(), soon());
    ASSERT_TRUE(link.ok()) << link.status().to_string();
    const auto session = (*link)->request_lease(ask(1, kLong));
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    EXPECT_EQ(session->local, "");
  }
  between.join();
}

}  // namespace
}  // namespace gpurun::server
