// TCP transport, beyond the common promises: adopted descriptors, their numbers, and connections to
// a closed port.
#include "transport/sockets/connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "transport/sockets/watch.h"
#include "transport/transport.h"

namespace gpurun::transport {
namespace {

constexpr std::chrono::seconds kTimeout{10};

// A worker gets its connection from the daemon as a bare descriptor.
TEST(TcpConnectionTest, AdoptsDuplicatedDescriptor) {
  Result<std::unique_ptr<Listener>> listener = listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  auto client = connect("tcp://" + (*listener)->address(), Deadline::in(kTimeout));
  auto server = (*listener)->accept(Deadline::in(kTimeout));
  ASSERT_TRUE(client.ok() && server.ok());
  UniqueFd copy(dup((*server)->fd()));
  server->reset();  // The copy keeps the connection: destroying one owner must not end it.
  auto adopted = sockets::SocketConnection::adopt(std::move(copy), {});
  ASSERT_TRUE(adopted.ok()) << adopted.status().to_string();
  EXPECT_EQ(fcntl((*adopted)->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_TRUE((*adopted)->capabilities().same_host);
  const ByteView hello = byte_view("hi", 2);
  ASSERT_TRUE((*adopted)->send({&hello, 1}, Deadline::in(kTimeout)).ok());
  Bytes got(2);
  EXPECT_TRUE((*client)->receive(got, 2, Deadline::in(kTimeout)).ok());
}

// A pacing system default (BBR) would slow a stream within one machine.
TEST(TcpConnectionTest, LocalConnectionUsesUnpacedCongestionControl) {
  Result<std::unique_ptr<Listener>> listener = listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  const auto client = connect("tcp://" + (*listener)->address(), Deadline::in(kTimeout));
  const auto server = (*listener)->accept(Deadline::in(kTimeout));
  ASSERT_TRUE(client.ok() && server.ok());
  for (const int fd : {(*client)->fd(), (*server)->fd()}) {
    char control[16] = {};
    socklen_t bytes = sizeof control;
    ASSERT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, control, &bytes), 0);
    EXPECT_STREQ(control, "reno");
  }
}

// The peer does not read. Bytes that do not fit are left to the caller, without waiting.
TEST(TcpConnectionTest, SendSomeReturnsWithoutBlocking) {
  Result<std::unique_ptr<Listener>> listener = listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  const auto client = connect("tcp://" + (*listener)->address(), Deadline::in(kTimeout));
  const auto server = (*listener)->accept(Deadline::in(kTimeout));
  ASSERT_TRUE(client.ok() && server.ok());
  const Bytes bytes(std::size_t{64} << 20, std::byte{7});
  const ByteView parts[] = {ByteView(bytes).first(10), ByteView(bytes).subspan(10)};
  const Result<std::size_t> went = (*client)->send_some(parts);
  ASSERT_TRUE(went.ok());
  EXPECT_GT(*went, 10U);
  EXPECT_LT(*went, bytes.size());
  Bytes got(*went);
  ASSERT_TRUE((*server)->receive(got, got.size(), Deadline::in(kTimeout)).ok());
  EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin()));
  (*client)->shut_down();
  EXPECT_EQ((*client)->send_some(parts).status().code(), Code::kPeerGone);
}

// The cost of hundreds of idle sessions is that of their threads that wake up to check a deadline.
TEST(TcpConnectionTest, PatientConnectionWakesLessOftenAndMeetsDeadlines) {
  Result<std::unique_ptr<Listener>> listener = listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  const std::string url = "tcp://" + (*listener)->address();
  const auto wakes_after_s = [](const Connection& connection) {
    timeval time{};
    socklen_t bytes = sizeof time;
    EXPECT_EQ(getsockopt(connection.fd(), SOL_SOCKET, SO_RCVTIMEO, &time, &bytes), 0);
    return time.tv_sec;
  };
  auto other = connect(url, Deadline::in(kTimeout));
  auto patient = connect(url, Deadline::in(kTimeout), {.patient = true});
  ASSERT_TRUE(other.ok() && patient.ok());
  EXPECT_EQ(wakes_after_s(**other), 1);
  EXPECT_EQ(wakes_after_s(**patient), 10);
  // A deadline between the two periods. The kernel's timeout alone would be seconds late.
  Bytes got(1);
  auto waited = std::async(std::launch::async, [&] {
    return (*patient)->receive(got, 1, Deadline::in(std::chrono::milliseconds(1100)));
  });
  ASSERT_EQ(waited.wait_for(std::chrono::seconds(8)), std::future_status::ready);
  EXPECT_EQ(waited.get().status().code(), Code::kDeadline);
  // It also ends at once on shut_down().
  auto ended = std::async(std::launch::async,
                          [&] { return (*patient)->receive(got, 1, Deadline::never()); });
  (*patient)->shut_down();
  ASSERT_EQ(ended.wait_for(std::chrono::seconds(8)), std::future_status::ready);
  EXPECT_EQ(ended.get().status().code(), Code::kPeerGone);
}

// For bytes that the socket does not know. It works whether or not a thread waits at that moment.
TEST(TcpConnectionTest, WakeEndsOneWaitEvenIfItComesFirst) {
  Result<std::unique_ptr<Listener>> listener = listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  auto client = connect("tcp://" + (*listener)->address(), Deadline::in(kTimeout));
  ASSERT_TRUE(client.ok());
  auto watch = sockets::SocketWatch::of(static_cast<sockets::SocketConnection&>(**client), 0);
  ASSERT_TRUE(watch.ok()) << watch.status().to_string();
  const auto sleeps = [&] {
    return (*watch)->wait(Deadline::in(std::chrono::milliseconds(1))).code() == Code::kDeadline;
  };
  EXPECT_TRUE(sleeps());
  (*watch)->wake();
  EXPECT_TRUE((*watch)->wait(Deadline::in(kTimeout)).ok());
  EXPECT_TRUE(sleeps());
  auto woken =
      std::async(std::launch::async, [&] { return (*watch)->wait(Deadline::in(kTimeout)); });
  (*watch)->wake();
  EXPECT_TRUE(woken.get().ok());
  EXPECT_TRUE(sleeps());
}

TEST(TcpConnectionTest, RefusesToAdoptNonSocket) {
  auto adopted = sockets::SocketConnection::adopt(UniqueFd(open("/dev/null", O_RDONLY)), {});
  ASSERT_FALSE(adopted.ok());
  EXPECT_EQ(adopted.status().code(), Code::kInvalidArgument);
}

// A server that closes at once is one that has hung up, and no fault of the descriptor.
TEST(TcpConnectionTest, AdoptingResetConnectionReturnsPeerGone) {
  const UniqueFd listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  ASSERT_EQ(bind(listening.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(::listen(listening.get(), 1), 0);
  ASSERT_EQ(getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  UniqueFd peer(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const linger reset{1, 0};
  ASSERT_EQ(setsockopt(peer.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset), 0);
  peer.reset();
  pollfd gone = {client.get(), POLLIN, 0};
  ASSERT_EQ(poll(&gone, 1, 10'000), 1);
  auto adopted = sockets::SocketConnection::adopt(std::move(client), {});
  ASSERT_FALSE(adopted.ok());
  EXPECT_EQ(adopted.status().code(), Code::kPeerGone) << adopted.status().to_string();
}

// Programs use low numbers themselves (select(), dup2 onto 3). Ours stay away from them, also if
// the limit forbids the preferred number.
TEST(TcpConnectionTest, MovesDescriptorUpWithinLimit) {
  Result<std::unique_ptr<Listener>> listener = listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  const std::string url = "tcp://" + (*listener)->address();
  auto high = connect(url, Deadline::in(kTimeout), {.fd_min = 700});
  ASSERT_TRUE(high.ok());
  EXPECT_GE((*high)->fd(), 700);
  rlimit old = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  rlimit low = old;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  auto limited = connect(url, Deadline::in(kTimeout), {.fd_min = 100'000});
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  ASSERT_TRUE(limited.ok());
  EXPECT_GE((*limited)->fd(), 200);
  EXPECT_LT((*limited)->fd(), 256);
}

// In the program's process the number may refer to one of the program's files at any moment.
TEST(TcpConnectionTest, DoesNotTouchReusedDescriptor) {
  Result<std::unique_ptr<Listener>> listener = listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  auto ours = connect("tcp://" + (*listener)->address(), Deadline::in(kTimeout),
                      {.fd_min = 700, .others_may_close = true});
  ASSERT_TRUE(ours.ok());
  const int number = (*ours)->fd();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  UniqueFd far(ends[1]);
  ASSERT_EQ(dup2(ends[0], number), number);
  close(ends[0]);
  const UniqueFd near(number);
  ASSERT_EQ(send(far.get(), "theirs", 6, 0), 6);

  const ByteView hello = byte_view("ours", 4);
  Bytes got(6);
  EXPECT_EQ((*ours)->send({&hello, 1}, Deadline::in(kTimeout)).code(), Code::kUnavailable);
  EXPECT_EQ((*ours)->receive(got, 1, Deadline::in(kTimeout)).status().code(), Code::kUnavailable);
  EXPECT_EQ((*ours)->receive_some(got, false).status().code(), Code::kUnavailable);
  (*ours)->shut_down();
  ours->reset();
  char letters[8];
  EXPECT_EQ(recv(far.get(), letters, sizeof letters, 0), -1);  // EAGAIN: neither bytes nor an end.
  EXPECT_EQ(recv(near.get(), letters, sizeof letters, 0), 6);
}

TEST(TcpConnectionTest, DetectsDescriptorOfOtherConnection) {
  Result<std::unique_ptr<Listener>> listener = listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  const std::string url = "tcp://" + (*listener)->address();
  const Options options = {.fd_min = 700, .others_may_close = true};
  auto one = connect(url, Deadline::in(kTimeout), options);
  auto other = connect(url, Deadline::in(kTimeout), options);
  ASSERT_TRUE(one.ok() && other.ok());
  ASSERT_EQ(dup2((*other)->fd(), (*one)->fd()), (*one)->fd());
  const UniqueFd theirs((*one)->fd());
  const ByteView hello = byte_view("ours", 4);
  EXPECT_EQ((*one)->send({&hello, 1}, Deadline::in(kTimeout)).code(), Code::kUnavailable);
  EXPECT_TRUE((*other)->send({&hello, 1}, Deadline::in(kTimeout)).ok());
}

TEST(TcpConnectionTest, ConnectToClosedPortReturnsUnavailable) {
  std::string address;
  {
    Result<std::unique_ptr<Listener>> listener = listen("tcp://127.0.0.1:0");
    ASSERT_TRUE(listener.ok());
    address = (*listener)->address();
  }
  const auto start = std::chrono::steady_clock::now();
  auto nobody = connect("tcp://" + address, Deadline::in(kTimeout));
  ASSERT_FALSE(nobody.ok());
  // The kernel refuses at once. The caller must not wait for its deadline.
  EXPECT_LT(std::chrono::steady_clock::now() - start, kTimeout / 2);
  EXPECT_EQ(nobody.status().code(), Code::kUnavailable) << nobody.status().to_string();
  EXPECT_NE(nobody.status().message().find(address), std::string::npos);
}

TEST(TcpConnectionTest, ListenOnTakenPortOrForeignAddressReturnsUnavailable) {
  Result<std::unique_ptr<Listener>> first = listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(listen("tcp://" + (*first)->address()).status().code(), Code::kUnavailable);
  EXPECT_EQ(listen("tcp://192.0.2.1:0").status().code(), Code::kUnavailable);
}

TEST(TcpConnectionTest, RefusesUnknownSchemesAndPortZero) {
  for (const char* url : {"quic://h:1", "h:1", "", "tcp://", "tcp://127.0.0.1:0"}) {
    EXPECT_EQ(connect(url, Deadline::in(kTimeout)).status().code(), Code::kInvalidArgument) << url;
  }
}

}  // namespace
}  // namespace gpurun::transport
