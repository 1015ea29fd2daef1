// Protects the way of a session within one machine: who is told of the local socket, that memory is
// shared over it by those who attach, and that whoever cannot go there goes by TCP, or hears why
// not.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <future>
#include <thread>

#include "base/close_unawaited.h"
#include "base/descriptor_message.h"
#include "protocol/local_address.h"
#include "tests/unit/server/daemon_under_test.h"
#include "transport/shm/connection.h"

namespace gpurun::server {
namespace {

using client::TransportKind;

class LocalTest : public DaemonTest {
 protected:
  static std::string some_address() {
    return protocol::local_address(*protocol::random_array<protocol::Id>());
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
    options.handshake_deadline = 3 * kLong;  // Nothing here ends by it.
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
  // As the worker would.
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

// Here nothing forks, and all are wanted.
class AllWanted final : public transport::DescriptorKeeper {
  void before_change() noexcept override {}
  void after_change(int) noexcept override {}
  bool wanted() const noexcept override { return true; }
};

TEST_F(LocalTest, WhoAttachesThereSharesMemoryWithItsWorker) {
  EXPECT_EQ(session_.local, local_->address());
  const auto attached = attach(client::all_transports());
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_EQ(attached->transport, "shared memory, not encrypted");
  EXPECT_TRUE(attached->channels.log->capabilities().shares_memory);
  EXPECT_TRUE(attached->channels.bulk[0]->capabilities().shares_memory);
  expect_they_talk(*attached->channels.log, *workers_end(0));
  expect_they_talk(*attached->channels.bulk[0], *workers_end(1));
}

TEST_F(LocalTest, SoDoesAConnectionThatJoinsLater) {
  const auto attached = attach(client::all_transports());
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  AllWanted keeper;
  const auto joined = attached->channels.more->open(keeper);
  ASSERT_TRUE(joined.ok()) << joined.status().to_string();
  EXPECT_TRUE(joined->connection->capabilities().shares_memory);
  expect_they_talk(*joined->connection, *workers_end(2));
}

TEST_F(LocalTest, TheUsersOrderIsHeeded) {
  const auto by_tcp = attach({TransportKind::kTcp, TransportKind::kSharedMemory});
  ASSERT_TRUE(by_tcp.ok()) << by_tcp.status().to_string();
  EXPECT_EQ(by_tcp->transport, "TCP, not encrypted");
  EXPECT_FALSE(by_tcp->channels.log->capabilities().shares_memory);
}

// The server of another machine has named a socket of that machine.
TEST_F(LocalTest, ANameThatLeadsNowhereCostsNothingAndIsTold) {
  session_.local = nowhere_;
  const auto attached = attach(client::all_transports());
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_EQ(attached->transport,
            "TCP, not encrypted (no shared memory: the server is not on this machine, or out of "
            "reach here: connecting to " +
                session_.local + ": Connection refused)");
  expect_they_talk(*attached->channels.log, *workers_end(0));
  const auto only = attach({TransportKind::kSharedMemory});
  ASSERT_FALSE(only.ok());
  EXPECT_EQ(only.status().code(), Code::kUnavailable);
  EXPECT_NE(only.status().message().find("GPURUN_TRANSPORTS allows shared memory only"),
            std::string::npos)
      << only.status().message();
}

// A door at which as many wait as may, and nobody is let in; with `room`, one fewer.
class FullDoor {
 public:
  explicit FullDoor(const std::string& url, bool room = false) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    const std::string path = url.substr(std::string("unix:").size());
    std::memcpy(name.sun_path + 1, path.data(), path.size());  // Abstract: behind a zero.
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + path.size());
    const auto* address = reinterpret_cast<const sockaddr*>(&name);
    EXPECT_EQ(bind(door_.get(), address, bytes), 0);
    EXPECT_EQ(listen(door_.get(), 0), 0);
    if (room) return;  // For one, as the kernel counts.
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

TEST_F(LocalTest, ADoorThatLetsNobodyInLeavesTimeForTheOtherWay) {
  session_.local = nowhere_;
  const FullDoor door(session_.local);
  client::AttachOptions options;
  options.connect_deadline = options.deadline = kLong;
  options.door_patience = std::chrono::milliseconds(20);
  const auto start = std::chrono::steady_clock::now();
  const auto attached = client::attach(session_, options);
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong / 2);
  EXPECT_EQ(attached->transport.find("TCP, not encrypted (no shared memory: "), 0U)
      << attached->transport;
  expect_they_talk(*attached->channels.log, *workers_end(0));
}

// Who believed it would connect to what the server likes.
class NamedOtherwiseTest : public LocalTest {
 protected:
  void SetUp() override {
    serve_at("unix:somebody-" + some_address().substr(std::string("unix:gpurun-").size()));
  }
};

TEST_F(NamedOtherwiseTest, AClientGoesToNoLocalSocketWhoseNameIsNoneOfGpurunds) {
  const auto session = control_->request_lease(ask(1));
  EXPECT_EQ(session.status().code(), Code::kProtocol);
  EXPECT_NE(session.status().message().find("none of gpurund's"), std::string::npos)
      << session.status().message();
}

// It has been let in: the others come in by the same door, as soon as there is room.
TEST_F(LocalTest, WhoIsLetInWaitsForRoomAsLongAsForAnyConnection) {
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

// Where nothing else leads to the server there is nothing to be in a hurry for.
TEST_F(LocalTest, ADoorThatIsTheOnlyWayIsStoodAtAsLongAsAnyOther) {
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

// What the user is told is of the way that he wanted first.
TEST_F(LocalTest, WhereNoWayLeadsTheServerIsNamed) {
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

// What encrypts means to.
TEST_F(LocalTest, AnEncryptedSessionStaysWithItsTls) {
  session_.encrypted = true;
  const auto only = attach({TransportKind::kSharedMemory});
  EXPECT_NE(only.status().message().find("the session is encrypted"), std::string::npos)
      << only.status().message();
}

// Nobody but the two of them has any use for the way there: its door asks as the other one does.
TEST_F(LocalTest, TheDoorAsksForTheTicketThere) {
  session_.ticket_key.fill(1);
  const auto attached = attach({TransportKind::kSharedMemory});
  EXPECT_EQ(attached.status().code(), Code::kRefused) << attached.status().to_string();
  EXPECT_NE(attached.status().message().find("not proved"), std::string::npos)
      << attached.status().message();
}

TEST_F(LocalTest, ThereIsNoTlsThere) {
  auto stranger = transport::connect(local_->address(), soon());
  ASSERT_TRUE(stranger.ok()) << stranger.status().to_string();
  const std::byte handshake{0x16};
  const ByteView part(&handshake, 1);
  ASSERT_TRUE((*stranger)->send({&part, 1}, soon()).ok());
  EXPECT_TRUE(closed(**stranger));
}

// A TCP socket whose last close waits for a minute: its other end reads nothing.
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

// Whoever closes the last of it waits as long as a stranger likes: none of ours does, whether they
// are received or go with a socket that is closed.
TEST_F(LocalTest, DescriptorsThatLingerHoldNobodyUp) {
  std::vector<std::unique_ptr<Lingering>> lingering;
  // True: it has gone, with its descriptor, behind the words, of which 40 make gpurund hang up.
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
      close_unawaited(std::move(sent));  // Ours may be the last, where gpurund was quick.
      return true;
    }
    let_not_linger(sent);  // It is ours again.
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
  thread_ = std::thread([] {});  // TearDown()'s.
}

// Whoever delays, meters or forwards a link does so for a reason: the session goes the same way.
TEST_F(LocalTest, WhoComesThroughSomethingElseIsNotToldOfIt) {
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
