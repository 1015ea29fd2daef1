// gpurund against intruders, on a link without encryption: garbage in each phase, recorded or
// altered messages, tickets and leases of others, guesses, and connections that only take up room.
// After each of them an honest client gets in, and no worker has been started.
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/unit/server/daemon/daemon_under_test.h"

namespace gpurun::server {
namespace {

using protocol::Sender;
using protocol::Token;
using LinkPointer = std::unique_ptr<transport::Connection>;

class IntrudersTest : public DaemonTest {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gpurun-intruders-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    token_ = make_user(folder_ + "/tokens", "anna");
    bens_ = make_user(folder_ + "/tokens", "ben");
  }
  void TearDown() override {
    EXPECT_EQ(workers_.started, 0);
    DaemonTest::TearDown();
    std::filesystem::remove_all(folder_);
  }
  // Deadlines that a test waits for are as short as a slow machine allows.
  void serve(milliseconds handshake = kLong, milliseconds grace = kLong,
             std::size_t half_open_max = limits::kHalfOpenMax) {
    DaemonOptions options;
    options.devices = 2;
    options.handshake_deadline = handshake;
    options.half_open_grace = grace;
    options.half_open_max = half_open_max;
    options.tokens = std::make_shared<TokenStore>(folder_ + "/tokens");
    options.audit = *AuditLog::open(folder_ + "/audit");
    start(std::move(options));
  }

  static void send(transport::Connection& to, ByteView bytes) {
    static_cast<void>(to.send({&bytes, 1}, soon()));
  }
  // Whether the daemon hangs up, whatever it sends before.
  static bool hangs_up(transport::Connection& link) {
    std::byte piece;
    while (true) {
      const auto got = link.receive({&piece, 1}, 1, soon());
      if (!got.ok()) return got.status().code() == Code::kPeerGone;
    }
  }
  // The messages of an honest client of anna on one link.
  struct Said {
    Bytes hello, proof, request;
    protocol::Key key{};
  };
  static Bytes untagged(const protocol::ControlMessage& message) {
    return protocol::control_frame(protocol::encode(message), std::nullopt);
  }
  Said say_hello(transport::Connection& link, const protocol::ControlMessage& request) {
    protocol::Hello hello{protocol::our_version(Sender::kClient), {}, token_.id};
    hello.nonce.fill(9);
    Said said;
    said.hello = untagged(hello);
    send(link, said.hello);
    const auto frame = protocol::receive_control(link, limits::kHelloBytesMax, soon());
    EXPECT_TRUE(frame.ok()) << frame.status().to_string();
    const auto message = protocol::decode(frame->payload);
    const auto& challenge = std::get<protocol::Challenge>(*message);
    said.key = protocol::link_key(bytes_of(token_.secret), protocol::Link::kControl,
                                  challenge.nonce, hello.nonce, {});
    said.proof = untagged(protocol::TokenProof{
        protocol::mask_token(token_.secret, challenge.nonce, hello.nonce, token_.id)});
    const Bytes payload = protocol::encode(request);
    said.request = protocol::control_frame(
        payload, protocol::frame_tag(said.key, Sender::kClient, 0, payload));
    return said;
  }
  void expect_an_honest_client_gets_in() {
    auto control = client::ControlLink::connect_with_token(daemon_->address(), bens_, soon());
    ASSERT_TRUE(control.ok()) << control.status().to_string();
    const auto session = (*control)->request_lease(ask(1, kLong));
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    end_lease(**control);
  }
  std::string folder_;
  Token token_, bens_;
};

std::vector<Bytes> garbage() {
  std::mt19937 random(5);
  std::vector<Bytes> all;
  for (const std::size_t bytes : {12, 13, 64, 4096}) {
    Bytes noise(bytes);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    all.push_back(noise);
  }
  const auto header = [](std::uint32_t payload, std::uint32_t tag) {
    Bytes frame = protocol::control_frame(Bytes(8), std::nullopt);
    frame.resize(protocol::kControlHeaderBytes + 64);
    std::memcpy(frame.data() + 4, &payload, 4);
    std::memcpy(frame.data() + 8, &tag, 4);
    return frame;
  };
  all.push_back(header(0xffffffff, 0));
  all.push_back(header(limits::kHelloBytesMax + 8, 0));
  all.push_back(header(0, 0));
  all.push_back(header(8, 31));
  all.push_back(header(7, 0));  // Not a multiple of whole words.
  all.push_back(header(16, 32));
  const Bytes payload = protocol::encode(protocol::Queued{1});  // A message that no server
                                                                // receives.
  protocol::Key key;
  key.fill(3);
  all.push_back(protocol::control_frame(payload, std::nullopt));
  all.push_back(
      protocol::control_frame(payload, protocol::frame_tag(key, Sender::kClient, 0, payload)));
  return all;
}

TEST_F(IntrudersTest, GarbageInAnyPhaseClosesConnection) {
  serve();
  auto holder = link();
  const auto session = holder->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  const protocol::ControlMessage lease = protocol::LeaseRequest{1, 0};
  const protocol::ControlMessage wait = protocol::LeaseRequest{2, 20'000};
  const std::vector<std::pair<const char*, std::function<void(transport::Connection&)>>> phases = {
      {"before the hello", [](auto&) {}},
      {"within the header", [](auto& link) { send(link, byte_view("grun\x08", 5)); }},
      {"after the challenge", [&](auto& link) { say_hello(link, lease); }},
      {"after the token's proof", [&](auto& link) { send(link, say_hello(link, lease).proof); }},
      {"in the queue",
       [&](auto& link) {
         const Said said = say_hello(link, wait);
         send(link, said.proof);
         send(link, said.request);
         EXPECT_TRUE(protocol::receive_control(link, limits::kHelloBytesMax, soon()).ok());
       }},
      {"while it holds a lease",
       [&](auto& link) {
         const Said said = say_hello(link, lease);
         send(link, said.proof);
         send(link, said.request);
         const auto grant = protocol::receive_control(link, limits::kHelloBytesMax, soon());
         EXPECT_TRUE(grant.ok() && protocol::proved(*grant, said.key, Sender::kServer, 0));
       }},
  };
  for (const auto& [name, reach] : phases) {
    int number = 0;
    for (const Bytes& noise : garbage()) {
      SCOPED_TRACE(std::string(name) + ", " + std::to_string(number++));
      auto link = dial();
      reach(*link);
      send(*link, noise);
      ::shutdown(link->fd(), SHUT_WR);
      EXPECT_TRUE(hangs_up(*link));
    }
    expect_an_honest_client_gets_in();
  }
  EXPECT_TRUE(holder->lease_ended().ok());
}

// The phase without a last byte: a session with one connection so far.
TEST_F(IntrudersTest, IncompleteSessionWithGarbageIsDropped) {
  serve(milliseconds(2000));
  auto holder = link();
  const auto session = holder->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  auto log = dial();
  say(*log, *session, words(*session, 3), 0);
  send(*log, garbage()[2]);
  EXPECT_TRUE(hangs_up(*log));
  expect_an_honest_client_gets_in();
}

TEST_F(IntrudersTest, ReplayedMessagesAreRejected) {
  serve();
  auto first = dial();
  const Said said = say_hello(*first, protocol::LeaseRequest{1, 0});
  send(*first, said.proof);
  send(*first, said.request);
  const auto grant = protocol::receive_control(*first, limits::kHelloBytesMax, soon());
  ASSERT_TRUE(grant.ok() && protocol::proved(*grant, said.key, Sender::kServer, 0));
  auto again = dial();
  for (const Bytes& frame : {said.hello, said.proof, said.request}) send(*again, frame);
  EXPECT_TRUE(protocol::receive_control(*again, limits::kHelloBytesMax, soon()).ok());
  EXPECT_NE(refusal(*again).find("does not know token"), std::string::npos);
  EXPECT_TRUE(hangs_up(*again));
  // Repeating the request on its own link does not work either, nor the server's answer to another
  // one.
  send(*first, said.request);
  EXPECT_TRUE(hangs_up(*first));
  auto listener = transport::listen("tcp://127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  std::thread impostor([&] {
    auto client = (*listener)->accept(soon());
    if (!client.ok()) return ADD_FAILURE() << client.status().to_string();
    static_cast<void>(protocol::receive_control(**client, limits::kHelloBytesMax, soon()));
    const protocol::Challenge challenge{protocol::our_version(Sender::kServer), {}};
    send(**client, untagged(challenge));
    send(**client, protocol::control_frame(grant->payload, grant->tag));
    hangs_up(**client);
  });
  {
    auto victim = client::ControlLink::connect_with_token((*listener)->address(), token_, soon());
    ASSERT_TRUE(victim.ok()) << victim.status().to_string();
    const auto lease = (*victim)->request_lease(ask(1));
    EXPECT_EQ(lease.status().code(), Code::kProtocol);
  }
  impostor.join();
  expect_an_honest_client_gets_in();
}

TEST_F(IntrudersTest, AlteredRequestIsRejected) {
  serve();
  const std::size_t bytes = [&] {
    auto link = dial();
    const Said said = say_hello(*link, protocol::LeaseRequest{1, 0});
    return said.proof.size() + said.request.size();
  }();
  for (std::size_t at = 0; at < bytes; at += 5) {
    auto link = dial();
    Said said = say_hello(*link, protocol::LeaseRequest{1, 0});
    // Cap'n Proto's padding of the proof has no meaning, and is not authenticated.
    const std::size_t padding = protocol::kControlHeaderBytes + 18;
    if (at >= padding && at < padding + 6) continue;
    Bytes& frame = at < said.proof.size() ? said.proof : said.request;
    frame[at < said.proof.size() ? at : at - said.proof.size()] ^= std::byte{1};
    send(*link, said.proof);
    send(*link, said.request);
    ::shutdown(link->fd(), SHUT_WR);
    // A longer or shorter frame is incomplete. All others get a refusal.
    const auto answer = protocol::receive_control(*link, limits::kHelloBytesMax, soon());
    if (!answer.ok()) continue;
    const auto message = protocol::decode(answer->payload);
    EXPECT_TRUE(message.ok() && std::holds_alternative<protocol::Refused>(*message)) << at;
  }
  expect_an_honest_client_gets_in();
}

TEST_F(IntrudersTest, AlteredAttachIsRejected) {
  serve();
  auto holder = link();
  const auto session = holder->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  const protocol::Attach attach = words(*session, 1);
  const protocol::Key key =
      protocol::link_key(bytes_of(session->ticket_key), protocol::Link::kAttach, session->challenge,
                         attach.nonce, attach.session);
  const Bytes payload = protocol::encode(attach);
  const Bytes good = protocol::control_frame(
      payload, protocol::frame_tag(key, Sender::kClient, attach.index, payload));
  for (std::size_t at = 0; at < good.size(); at += 3) {
    auto link = dial();
    Bytes frame = good;
    frame[at] ^= std::byte{1};
    send(*link, frame);
    ::shutdown(link->fd(), SHUT_WR);
    EXPECT_TRUE(hangs_up(*link)) << at;
  }
  EXPECT_TRUE(holder->lease_ended().ok());
}

TEST_F(IntrudersTest, TicketForLeaseOfAnotherUserIsRefused) {
  serve();
  auto annas = client::ControlLink::connect_with_token(daemon_->address(), token_, soon());
  auto bens = client::ControlLink::connect_with_token(daemon_->address(), bens_, soon());
  ASSERT_TRUE(annas.ok() && bens.ok());
  const auto hers = (*annas)->request_lease(ask(1));
  const auto his = (*bens)->request_lease(ask(1));
  ASSERT_TRUE(hers.ok() && his.ok());
  client::SessionData forged = *his;
  forged.lease = hers->lease;  // Her lease with his ticket,
  EXPECT_EQ(client::attach(forged, {}).status().code(), Code::kRefused);
  forged.ticket = hers->ticket;  // with her ticket, which is not secret, and his key,
  EXPECT_EQ(client::attach(forged, {}).status().code(), Code::kRefused);
  forged.challenge = hers->challenge;  // with her challenge as well,
  EXPECT_EQ(client::attach(forged, {}).status().code(), Code::kRefused);
  forged.ticket_key = {};  // and without any key.
  EXPECT_EQ(client::attach(forged, {}).status().code(), Code::kRefused);
  auto untagged_attach = dial();
  send(*untagged_attach, untagged(words(*hers, 1)));
  EXPECT_NE(refusal(*untagged_attach).find("not proved"), std::string::npos);
}

TEST_F(IntrudersTest, HonestClientIsAdmittedWhileStrangersFillAllSlots) {
  serve(10 * kLong, milliseconds(100));  // No connection ends by itself.
  std::vector<LinkPointer> silent, talking;
  for (std::size_t i = 0; i < limits::kHalfOpenMax; ++i) silent.push_back(dial());
  for (std::size_t i = 0; i < limits::kHalfOpenOfSourceMax; ++i) {
    talking.push_back(dial());
    send(*talking.back(), byte_view("g", 1));
  }
  const Deadline deadline = soon();
  while (daemon_->half_open() < silent.size() + talking.size() && !deadline.passed()) {
    std::this_thread::yield();
  }
  expect_an_honest_client_gets_in();
  // Only the connections in the way were closed: the first of those that had sent something.
  for (const int fd : {silent.front()->fd(), talking.back()->fd()}) {
    pollfd last = {fd, POLLIN, 0};
    EXPECT_EQ(poll(&last, 1, 0), 0);
  }
  EXPECT_TRUE(hangs_up(*talking.front()));
}

// An occasional byte is not an answer. One deadline covers all that an unknown client sends.
TEST_F(IntrudersTest, SlowBytesDoNotExtendDeadline) {
  serve(milliseconds(600), kLong, 2);
  std::atomic<int> hung_up{0};
  const auto drip = [&](const Bytes& words) {
    auto link = dial();
    for (const std::byte byte : words) {
      const ByteView part(&byte, 1);
      if (!link->send({&part, 1}, soon()).ok()) break;
      pollfd gone = {link->fd(), POLLRDHUP, 0};
      if (poll(&gone, 1, 50) > 0) break;
    }
    if (hangs_up(*link)) ++hung_up;
  };
  protocol::Hello hello{protocol::our_version(Sender::kClient), {}, token_.id};
  const Bytes words = untagged(hello);
  ASSERT_GT(words.size(), 60u);  // It would take three seconds.
  std::thread first(drip, words);
  std::thread second(drip, words);
  first.join();
  second.join();
  EXPECT_EQ(hung_up, 2);
  expect_an_honest_client_gets_in();
}

TEST_F(IntrudersTest, GuessedTokensAreRefusedAndDoNotFloodAuditLog) {
  serve();
  const auto start = std::chrono::steady_clock::now();
  std::mt19937 random(7);
  for (int guess = 0; guess < 200; ++guess) {
    Token wrong = token_;
    for (std::uint8_t& byte : wrong.secret) byte = static_cast<std::uint8_t>(random());
    if (guess % 2 == 1) wrong.id[guess % 6] ^= 1;
    auto control = client::ControlLink::connect_with_token(daemon_->address(), wrong, soon());
    ASSERT_TRUE(control.ok()) << control.status().to_string();
    const Status refused = (*control)->request_lease(ask(1)).status();
    EXPECT_EQ(refused.code(), Code::kRefused);
    // The message does not reveal whether the id was right.
    EXPECT_NE(refused.message().find("does not know token"), std::string::npos);
  }
  std::ifstream file(folder_ + "/audit");
  const std::string lines{std::istreambuf_iterator<char>(file), {}};
  const auto whole_seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start);
  const auto written = std::count(lines.begin(), lines.end(), '\n');
  EXPECT_GE(written, AuditLog::kRefusalsASecond);
  EXPECT_LE(written, AuditLog::kRefusalsASecond * (whole_seconds.count() + 1));
  expect_an_honest_client_gets_in();
}

}  // namespace
}  // namespace gpurun::server
