// gpurund under floods that need no secret: a thousand connections of one address, idle or reopened
// as soon as they are closed, and urgent bytes that poll() reports but reads do not pass. Meanwhile
// clients of other addresses, those with a ticket, and those at the local socket get in at once.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "protocol/control/local_address.h"
#include "server/daemon/links/handshake_admission.h"
#include "server/daemon/links/peer_source.h"
#include "tests/unit/server/daemon/daemon_under_test.h"
#include "transport/sockets/connection.h"

namespace gpurun::server {
namespace {

using protocol::Sender;
using transport::sockets::SocketAddress;

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GPURUN_SLOW_TEST 1
#endif
#endif
#ifdef GPURUN_SLOW_TEST
constexpr bool kSlow = true;
#else
constexpr bool kSlow = false;
#endif
// Instrumented code is slower.
constexpr milliseconds kSoonEnough{kSlow ? 10'000 : 1'500};

SocketAddress ipv4(std::uint32_t address, std::uint16_t port = 0) {
  SocketAddress made;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&made.storage);
  v4->sin_family = AF_INET;
  v4->sin_port = htons(port);
  v4->sin_addr.s_addr = htonl(address);
  made.byte_count = sizeof *v4;
  return made;
}
constexpr std::uint32_t kLoopback = 0x7f000001;

// A socket from 127.0.0.`host` that connects to `port`. With `wait` it is connected.
UniqueFd dial_from(unsigned host, std::uint16_t port, bool wait = true) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (wait ? 0 : SOCK_NONBLOCK), 0));
  const SocketAddress from = ipv4(kLoopback - 1 + host), to = ipv4(kLoopback, port);
  EXPECT_EQ(bind(fd.get(), from.get(), from.byte_count), 0);
  const int connected = connect(fd.get(), to.get(), to.byte_count);
  EXPECT_TRUE(connected == 0 || (!wait && errno == EINPROGRESS)) << std::strerror(errno);
  return fd;
}

bool hangs_up(int fd) {
  pollfd end = {fd, POLLIN | POLLRDHUP, 0};
  char dropped[256];
  while (poll(&end, 1, static_cast<int>(kLong.count())) == 1) {
    if (recv(fd, dropped, sizeof dropped, 0) <= 0) return true;
  }
  return false;
}

// Connections from 127.0.0.2 that send `words` and nothing more. Each is reopened once it is
// closed.
class Flood {
 public:
  Flood(std::uint16_t port, std::size_t count, std::string words)
      : port_(port), words_(std::move(words)), links_(count) {
    thread_ = std::thread([this] { run(); });
    while (rounds_ == 0) std::this_thread::yield();
  }
  ~Flood() {
    stopping_ = true;
    thread_.join();
  }

 private:
  void run() {
    for (; !stopping_; ++rounds_) {
      for (UniqueFd& link : links_) {
        if (stopping_) return;
        if (link.valid() && !closed(link.get())) continue;
        link = dial_from(2, port_, false);
        pollfd ready = {link.get(), POLLOUT, 0};
        if (!words_.empty() && poll(&ready, 1, 100) == 1) {
          (void)send(link.get(), words_.data(), words_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
      }
    }
  }
  static bool closed(int fd) {
    pollfd end = {fd, POLLRDHUP, 0};
    return poll(&end, 1, 0) == 1;
  }

  const std::uint16_t port_;
  const std::string words_;
  std::vector<UniqueFd> links_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> rounds_{0};
  std::thread thread_;
};

class FloodTest : public DaemonTest {
 protected:
  void SetUp() override {
    rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  void serve(std::size_t places = limits::kHalfOpenMax, milliseconds handshake = 3 * kLong,
             milliseconds grace = milliseconds(limits::kHalfOpenGraceMs)) {
    auto local = transport::listen(protocol::local_address(*random_array<protocol::Id>()));
    ASSERT_TRUE(local.ok()) << local.status().to_string();
    local_ = *std::move(local);
    DaemonOptions options;
    options.devices = 16;
    options.handshake_deadline = handshake;
    options.half_open_max = places;
    options.half_open_grace = grace;
    options.local = local_;
    start(std::move(options));
    port_ = transport::sockets::parse_host_port(daemon_->address(), 0)->port;
  }
  // Requests a lease on `link`, with the server's secret and without TLS.
  static bool takes_lease(transport::Connection& link) {
    const protocol::Hello hello{protocol::our_version(Sender::kClient), {}, {}};
    if (!protocol::send_control(link, hello, soon()).ok()) return false;
    const auto frame = protocol::receive_control(link, limits::kHelloBytesMax, soon());
    const auto message = frame.ok() ? protocol::decode(frame->payload) : frame.status();
    if (!message.ok() || !std::holds_alternative<protocol::Challenge>(*message)) return false;
    const protocol::Key key =
        protocol::link_key(secret(), protocol::Link::kControl,
                           std::get<protocol::Challenge>(*message).nonce, hello.nonce, {});
    const protocol::LeaseRequest request{1, 0};
    if (!protocol::send_control(link, request, key, Sender::kClient, 0, soon()).ok()) return false;
    const auto answer = protocol::receive_control(link, limits::kHelloBytesMax, soon());
    const auto grant = answer.ok() ? protocol::decode(answer->payload) : answer.status();
    return grant.ok() && std::holds_alternative<protocol::Grant>(*grant);
  }
  bool takes_lease_from(unsigned host) {
    UniqueFd fd = dial_from(host, port_);
    auto link = transport::sockets::SocketConnection::adopt(std::move(fd), {});
    return link.ok() && takes_lease(**link);
  }
  bool takes_lease_locally() {
    auto link = transport::connect(local_->address(), soon());
    return link.ok() && takes_lease(**link);
  }
  // Attaches with both connections from the flood's own address.
  bool attaches(const client::SessionData& session, std::uint8_t id) {
    std::vector<std::unique_ptr<transport::Connection>> links;
    for (std::uint16_t index = 0; index < 2; ++index) {
      auto link = transport::sockets::SocketConnection::adopt(dial_from(2, port_), {});
      if (!link.ok()) return false;
      say(**link, session, words(session, id), index);
      links.push_back(*std::move(link));
    }
    return protocol::receive_control(*links[0], limits::kFrameBytesMax, soon()).ok();
  }
  template <typename Action>
  static void expect_soon(const char* what, const Action& action) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(action()) << what;
    const auto took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took, kSoonEnough) << what << " took "
                                 << std::chrono::duration_cast<milliseconds>(took).count() << " ms";
  }
  void expect_others_get_in(const std::string& words) {
    serve();
    auto holder = link();
    const auto session = holder->request_lease(ask(1));
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    const Flood flood(port_, 1000, words);
    for (std::uint8_t round = 1; round <= 3; ++round) {
      expect_soon("a lease for another address", [this] { return takes_lease_from(3); });
      expect_soon("a lease at the local socket", [this] { return takes_lease_locally(); });
      expect_soon("an attach", [&] { return attaches(*session, round); });
    }
  }

  std::shared_ptr<transport::Listener> local_;
  std::uint16_t port_ = 0;
};

TEST_F(FloodTest, IdleConnectionsDoNotBlockOtherClients) { expect_others_get_in(""); }

TEST_F(FloodTest, PartialHellosDoNotBlockOtherClients) { expect_others_get_in("g"); }

TEST_F(FloodTest, PartialTlsHandshakesDoNotBlockOtherClients) {
  expect_others_get_in(std::string("\x16\x03\x01\x02\x00\x01", 6));
}

// All that wait, and not one for each check.
TEST_F(FloodTest, AdmitsAllWaitingClientsWhenGraceExpires) {
  constexpr unsigned kPlaces = 8;
  serve(kPlaces, 3 * kLong, kSoonEnough / 3);
  std::vector<UniqueFd> strangers;
  for (unsigned host = 10; host < 10 + kPlaces; ++host) {
    strangers.push_back(dial_from(host, port_));
    ASSERT_EQ(send(strangers.back().get(), "g", 1, MSG_NOSIGNAL), 1);
  }
  const Deadline deadline = soon();
  while (daemon_->half_open() < kPlaces && !deadline.passed()) std::this_thread::yield();
  std::atomic<unsigned> served{0};
  expect_soon("a lease each", [&] {
    std::vector<std::thread> clients;
    for (unsigned host = 30; host < 30 + kPlaces; ++host) {
      clients.emplace_back([this, host, &served] { served += takes_lease_from(host) ? 1 : 0; });
    }
    for (std::thread& client : clients) client.join();
    return served == kPlaces;
  });
}

// One source's waiting connections use a bounded number of descriptors.
TEST_F(FloodTest, LimitsWaitingConnectionsOfOneAddress) {
  serve();
  std::vector<UniqueFd> links;
  for (int i = 0; i < 1000; ++i) links.push_back(dial_from(2, port_));
  expect_soon("a lease", [this] { return takes_lease_from(3); });  // By now all others have
                                                                   // arrived.
  EXPECT_LE(daemon_->half_open(), limits::kSilentOfSourceMax);
  const auto all_others_are_closed = [&links] {
    const auto closed = std::count_if(links.begin(), links.end(), [](const UniqueFd& link) {
      pollfd end = {link.get(), POLLRDHUP, 0};
      return poll(&end, 1, 0) == 1;
    });
    return static_cast<std::size_t>(closed) >= links.size() - limits::kSilentOfSourceMax;
  };
  const Deadline deadline = soon();  // Another thread closes them.
  while (!all_others_are_closed() && !deadline.passed()) std::this_thread::yield();
  EXPECT_TRUE(all_others_are_closed());
}

// A peek stops at an urgent byte, and poll() reports the bytes behind it.
TEST_F(FloodTest, UrgentByteInFirstBytesClosesConnection) {
  serve();  // No deadline passes here.
  for (const std::string& before :
       {std::string("\x16"), std::string("\x16\x03\x01"), std::string()}) {
    const UniqueFd link = dial_from(2, port_);
    ASSERT_EQ(send(link.get(), before.data(), before.size(), 0), ssize_t(before.size()));
    ASSERT_EQ(send(link.get(), "\x16", 1, MSG_OOB), 1);
    const std::string behind(64, '\x16');
    ASSERT_EQ(send(link.get(), behind.data(), behind.size(), MSG_NOSIGNAL), 64);
    EXPECT_TRUE(hangs_up(link.get())) << before.size();
  }
}

TEST_F(FloodTest, UrgentByteAtLocalSocketClosesConnection) {
  serve();
  auto link = transport::connect(local_->address(), soon());
  ASSERT_TRUE(link.ok());
  const int fd = (*link)->fd();
  if (send(fd, "g", 1, MSG_OOB) != 1) GTEST_SKIP() << "this kernel has no urgent bytes there";
  const std::string behind(64, 'g');
  EXPECT_EQ(send(fd, behind.data(), behind.size(), MSG_NOSIGNAL), 64);
  EXPECT_TRUE(hangs_up(fd));
}

class HandshakeAdmissionTest : public testing::Test {
 protected:
  void SetUp() override {
    rlimit limit = {};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    auto made = HandshakeAdmission::create(
        {}, [this](const transport::Connection&) { return tickets_; }, closer_);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    admission_ = *std::move(made);
  }
  void add(const std::string& source, const std::string& words) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0) << std::strerror(errno);
    peers_.emplace_back(ends[1]);
    ASSERT_EQ(send(ends[1], words.data(), words.size(), 0), ssize_t(words.size()));
    auto connection = transport::sockets::SocketConnection::adopt(UniqueFd(ends[0]), {});
    ASSERT_TRUE(connection.ok());
    admission_->add(*std::move(connection), source);
  }

  ConnectionCloser closer_;
  bool tickets_ = false;
  std::vector<UniqueFd> peers_;
  std::unique_ptr<HandshakeAdmission> admission_;
};

TEST_F(HandshakeAdmissionTest, LimitsWaitingConnectionsPerSourceAndInTotal) {
  const auto add_and_look = [this](const std::string& source, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      add(source, "g");
      admission_->look();
    }
  };
  add_and_look("a", limits::kWaitingOfSourceSoft);
  EXPECT_EQ(admission_->count(), limits::kWaitingOfSourceSoft) << "up to here none is closed";
  add_and_look("a", 2 * limits::kWaitingOfSourceMax);
  const std::size_t of_one = admission_->count();
  EXPECT_LE(of_one, limits::kWaitingOfSourceMax);
  EXPECT_GT(of_one, limits::kWaitingOfSourceSoft);
  for (const char* source : {"b", "c", "d", "e", "f"}) {
    for (std::size_t i = 0; i < limits::kSilentOfSourceMax; ++i) add(source, "");
  }
  EXPECT_EQ(admission_->count(), limits::kWaitingConnectionsMax);
  // The last connection, from a source without another one, is not the closed one.
  add("z", "g");
  admission_->look();
  EXPECT_EQ(admission_->count(), limits::kWaitingConnectionsMax);
  // A source without places comes before a source that has some.
  auto of_crowd = admission_->next();
  auto of_z = admission_->next();
  ASSERT_TRUE(of_crowd.connection != nullptr && of_z.connection != nullptr);
  ASSERT_EQ(send(peers_.back().get(), "last", 4, MSG_NOSIGNAL), 4);
  std::byte words[5];
  EXPECT_TRUE(of_z.connection->receive(words, sizeof words, soon()).ok()) << "it is the last one";
}

TEST_F(HandshakeAdmissionTest, TicketHandshakesHaveTheirOwnLimit) {
  std::vector<HandshakeAdmission::Admitted> strangers, tickets;
  for (std::size_t i = 0; i < 2 * limits::kHalfOpenMax; ++i) add(std::to_string(i), "g");
  admission_->look();
  for (auto one = admission_->next(); one.connection != nullptr; one = admission_->next()) {
    strangers.push_back(std::move(one));
  }
  EXPECT_EQ(strangers.size(), limits::kHalfOpenMax);
  tickets_ = true;
  for (std::size_t i = 0; i <= limits::kTicketHandshakesMax; ++i) add("a", "g");
  admission_->look();
  for (auto one = admission_->next(); one.connection != nullptr; one = admission_->next()) {
    tickets.push_back(std::move(one));
  }
  EXPECT_EQ(tickets.size(), limits::kTicketHandshakesMax);
  admission_->leave(tickets.back().connection.get());
  EXPECT_NE(admission_->next().connection, nullptr);
}

TEST(PeerSource, GroupsIPv4ByAddressAndIPv6BySubnet) {
  const auto ipv6 = [](const char* text) {
    SocketAddress made;
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&made.storage);
    v6->sin6_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
    made.byte_count = sizeof *v6;
    return source_of(made);
  };
  EXPECT_EQ(source_of(ipv4(0x0a000001, 1)), source_of(ipv4(0x0a000001, 2)));
  EXPECT_NE(source_of(ipv4(0x0a000001)), source_of(ipv4(0x0a000002)));
  EXPECT_EQ(ipv6("::ffff:10.0.0.1"), source_of(ipv4(0x0a000001)));
  EXPECT_EQ(ipv6("2001:db8:0:1::1"), ipv6("2001:db8:0:1:ffff::2"));
  EXPECT_NE(ipv6("2001:db8:0:1::1"), ipv6("2001:db8:0:2::1"));
  EXPECT_NE(ipv6("::1"), source_of(ipv4(kLoopback)));
}

}  // namespace
}  // namespace gpurun::server
