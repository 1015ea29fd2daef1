// gpurund's admission inside TLS, where a client sends hello, proof and request together: they are
// read whole, however they are cut, and a proof is valid only for its channel. A refused client can
// read the reason although it is still sending. A client that then stays costs nothing.
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/unit/server/daemon/daemon_under_test.h"
#include "transport/tls/connection.h"

namespace gpurun::server {
namespace {

namespace tls = transport::tls;
using protocol::Link;
using protocol::Sender;
using protocol::Token;

// An unknown client that has completed the handshake and sends anything.
struct Inside {
  std::unique_ptr<transport::Connection> link;
  protocol::Nonce exporter{};
};
struct Words {
  Bytes hello, proof, request;
  protocol::Key key{};
  Bytes all() const {
    Bytes together = hello;
    together.insert(together.end(), proof.begin(), proof.end());
    together.insert(together.end(), request.begin(), request.end());
    return together;
  }
};

class DaemonTlsTest : public DaemonTest {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gpurun-inside-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    token_ = make_user(folder_ + "/tokens", "anna");
  }
  void TearDown() override {
    DaemonTest::TearDown();
    std::filesystem::remove_all(folder_);
  }
  void serve(milliseconds deadline = 10 * kLong, milliseconds grace = kLong,
             std::size_t half_open_max = limits::kHalfOpenMax) {
    DaemonOptions options;
    options.devices = 1;
    options.handshake_deadline = deadline;
    options.half_open_grace = grace;
    options.half_open_max = half_open_max;
    options.identity = *tls::Identity::make("here");
    options.tls_only = true;
    options.tokens = std::make_shared<TokenStore>(folder_ + "/tokens");
    options.audit = *AuditLog::open(folder_ + "/audit");
    start(std::move(options));
  }

  Inside enter() {
    Inside inside;
    auto connection = dial();
    auto channel = (*tls::Handshake::of_client({}))->finish(*connection, soon());
    EXPECT_TRUE(channel.ok()) << channel.status().to_string();
    if (!channel.ok()) return inside;
    inside.exporter = channel->binding;
    inside.link = *tls::secure(std::move(connection), *std::move(channel));
    return inside;
  }
  // The messages of a client in a channel with that exporter: of anna, or of a client that knows
  // the server's secret.
  Words words_for(const protocol::Nonce& exporter, bool with_token, Link kind = Link::kControlInTls,
                  std::uint64_t wait_ms = 0) const {
    const Bytes own = secret();
    protocol::Hello hello{protocol::our_version(Sender::kClient), {}};
    hello.nonce.fill(9);
    if (with_token) hello.token = token_.id;
    Words words;
    words.hello = untagged(hello);
    if (with_token) {
      words.proof = untagged(protocol::TokenProof{
          protocol::mask_token(token_.secret, exporter, hello.nonce, token_.id)});
    }
    words.key = protocol::link_key(with_token ? bytes_of(token_.secret) : ByteView(own), kind,
                                   exporter, hello.nonce, {});
    const Bytes payload = protocol::encode(protocol::LeaseRequest{1, wait_ms});
    words.request = protocol::control_frame(
        payload, protocol::frame_tag(words.key, Sender::kClient, 0, payload));
    return words;
  }
  static Bytes untagged(const protocol::ControlMessage& message) {
    return protocol::control_frame(protocol::encode(message), std::nullopt);
  }
  static Bytes hello_of_another_version() {
    protocol::Hello hello{protocol::our_version(Sender::kClient), {}};
    hello.version.protocol += 1;
    return untagged(hello);
  }
  static Status send(transport::Connection& to, ByteView bytes) {
    return to.send({&bytes, 1}, soon());
  }
  static bool hears_challenge(transport::Connection& link) {
    const auto frame = protocol::receive_control(link, limits::kHelloBytesMax, soon());
    const auto message = frame.ok() ? protocol::decode(frame->payload)
                                    : Result<protocol::ControlMessage>(frame.status());
    const auto* challenge = message.ok() ? std::get_if<protocol::Challenge>(&*message) : nullptr;
    return challenge != nullptr && challenge->version.protocol == protocol::kVersion;
  }
  static bool hears_grant(transport::Connection& link, const protocol::Key& key) {
    const auto frame = protocol::receive_control(link, limits::kHelloBytesMax, soon());
    return frame.ok() && protocol::proved(*frame, key, Sender::kServer, 0) &&
           std::holds_alternative<protocol::Grant>(*protocol::decode(frame->payload));
  }
  // Whether the daemon hangs up, whatever it sends before.
  static bool hangs_up(transport::Connection& link) {
    std::byte piece;
    while (true) {
      const auto got = link.receive({&piece, 1}, 1, soon());
      if (!got.ok()) return got.status().code() == Code::kPeerGone;
    }
  }
  bool half_open_becomes(std::size_t count) const {
    const Deadline deadline = soon();
    while (daemon_->half_open() != count) {
      if (deadline.passed()) return false;
      std::this_thread::yield();
    }
    return true;
  }
  std::size_t audited(const std::string& part) const {
    std::ifstream file(folder_ + "/audit");
    std::size_t count = 0;
    for (std::string line; std::getline(file, line);) count += line.find(part) != line.npos;
    return count;
  }
  void expect_an_honest_client_gets_in() {
    client::LinkSecurity security;
    security.always_tls = true;
    security.known_servers = folder_ + "/known";
    auto control =
        client::ControlLink::connect_with_token(daemon_->address(), token_, soon(), security);
    ASSERT_TRUE(control.ok()) << control.status().to_string();
    const auto session = (*control)->request_lease(ask(1, kLong));
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    end_lease(**control);
  }
  std::string folder_;
  Token token_;
};

TEST_F(DaemonTlsTest, ReadsPipelinedMessagesInAnyFragmentation) {
  serve();
  for (const bool with_token : {false, true}) {
    for (const std::size_t piece : {std::size_t{1}, std::size_t{50}, std::size_t{1} << 14}) {
      Inside inside = enter();
      const Words words = words_for(inside.exporter, with_token, Link::kControlInTls, 20'000);
      const Bytes all = words.all();
      for (ByteView rest(all); !rest.empty(); rest = rest.subspan(std::min(piece, rest.size()))) {
        ASSERT_TRUE(send(*inside.link, rest.first(std::min(piece, rest.size()))).ok());
      }
      EXPECT_TRUE(hears_challenge(*inside.link));
      EXPECT_TRUE(hears_grant(*inside.link, words.key));
      EXPECT_EQ(daemon_->half_open(), 0u);
      ::shutdown(inside.link->fd(), SHUT_WR);
      EXPECT_TRUE(hangs_up(*inside.link));
    }
  }
}

// Neither messages from another channel nor those of a link without encryption are accepted.
TEST_F(DaemonTlsTest, ProofIsValidOnlyForItsChannel) {
  serve();
  const Inside other = enter();
  std::size_t refusals = 0;
  const auto refused = [&](const std::function<Words(const protocol::Nonce&)>& said,
                           const std::string& why) {
    Inside inside = enter();
    ASSERT_TRUE(send(*inside.link, said(inside.exporter).all()).ok());
    EXPECT_TRUE(hears_challenge(*inside.link));
    EXPECT_NE(refusal(*inside.link).find(why), std::string::npos) << why;
    EXPECT_TRUE(hangs_up(*inside.link));
    EXPECT_EQ(audited("link.refused"), ++refusals) << why;
  };
  for (const bool with_token : {false, true}) {
    refused([&](const auto&) { return words_for(other.exporter, with_token); },
            with_token ? "does not know token" : "the secret is wrong");
    refused([&](const auto&) { return words_for({}, with_token); },
            with_token ? "does not know token" : "the secret is wrong");
    refused([&](const auto& own) { return words_for(own, with_token, Link::kControl); },
            with_token ? "the request is not proved" : "the secret is wrong");
    refused(
        [&](const auto& own) {
          Words words = words_for(own, with_token);
          words.request.back() ^= std::byte{1};
          return words;
        },
        with_token ? "the request is not proved" : "the secret is wrong");
  }
  expect_an_honest_client_gets_in();
}

// TCP drops sent bytes when their sender closes with unread input.
TEST_F(DaemonTlsTest, RefusalReachesClientThatIsStillSending) {
  serve();
  Inside inside = enter();
  ASSERT_TRUE(send(*inside.link, hello_of_another_version()).ok());
  pollfd refused = {inside.link->fd(), POLLIN, 0};
  ASSERT_EQ(poll(&refused, 1, soon().poll_timeout_ms()), 1);
  // The server has refused by now. Further bytes would cause a reset if it had closed.
  const Words late = words_for(inside.exporter, true);
  EXPECT_TRUE(send(*inside.link, late.proof).ok());
  EXPECT_TRUE(send(*inside.link, late.request).ok());
  EXPECT_EQ(daemon_->half_open(), 1u) << "he is a stranger as long as he stays";
  EXPECT_NE(refusal(*inside.link).find("update the server"), std::string::npos);
  std::byte end;
  EXPECT_EQ(recv(inside.link->fd(), &end, 1, 0), 0) << "an end, and no reset";
  inside.link.reset();
  EXPECT_TRUE(half_open_becomes(0));
  expect_an_honest_client_gets_in();
}

TEST_F(DaemonTlsTest, RefusedClientThatKeepsSendingIsDisconnected) {
  serve();  // No deadline passes here.
  Inside inside = enter();
  ASSERT_TRUE(send(*inside.link, hello_of_another_version()).ok());
  EXPECT_NE(refusal(*inside.link).find("update the server"), std::string::npos);
  const Bytes noise(1000);
  for (int more = 0; more < 10'000 && daemon_->half_open() > 0; ++more) {
    if (!send(*inside.link, noise).ok()) break;
  }
  EXPECT_TRUE(half_open_becomes(0));
}

TEST_F(DaemonTlsTest, RefusedClientThatStaysTimesOut) {
  serve(milliseconds(2000));
  Inside inside = enter();
  ASSERT_TRUE(send(*inside.link, hello_of_another_version()).ok());
  EXPECT_NE(refusal(*inside.link).find("update the server"), std::string::npos);
  EXPECT_TRUE(half_open_becomes(0));
}

TEST_F(DaemonTlsTest, RefusedClientsYieldTheirSlots) {
  serve(10 * kLong, milliseconds(50), 2);
  std::vector<Inside> refused;
  for (int i = 0; i < 2; ++i) {
    refused.push_back(enter());
    ASSERT_TRUE(send(*refused.back().link, hello_of_another_version()).ok());
    EXPECT_NE(refusal(*refused.back().link).find("update the server"), std::string::npos);
  }
  EXPECT_EQ(daemon_->half_open(), 2u);
  expect_an_honest_client_gets_in();
}

// Bytes that were read together with the request are no longer visible at the descriptor, but they
// count.
TEST_F(DaemonTlsTest, ExtraBytesAfterRequestEndLeaseOrWait) {
  serve();
  {
    Inside holder = enter();
    const Words words = words_for(holder.exporter, true);
    Bytes all = words.all();
    all.push_back(std::byte{1});
    ASSERT_TRUE(send(*holder.link, all).ok());
    EXPECT_TRUE(hears_challenge(*holder.link));
    EXPECT_TRUE(hears_grant(*holder.link, words.key));
    EXPECT_TRUE(hangs_up(*holder.link));
  }
  client::LinkSecurity security;
  security.always_tls = true;
  security.known_servers = folder_ + "/known";
  auto holder = client::ControlLink::connect(daemon_->address(), secret(), soon(), security);
  ASSERT_TRUE(holder.ok() && (*holder)->request_lease(ask(1, kLong)).ok());
  Inside waiter = enter();
  Bytes all = words_for(waiter.exporter, true, Link::kControlInTls, 10 * kLong.count()).all();
  all.push_back(std::byte{1});
  ASSERT_TRUE(send(*waiter.link, all).ok());
  EXPECT_TRUE(hears_challenge(*waiter.link));
  EXPECT_EQ(refusal(*waiter.link), "") << "that it waits";
  EXPECT_NE(refusal(*waiter.link).find("has left the queue"), std::string::npos);
  EXPECT_TRUE(hangs_up(*waiter.link));
  EXPECT_TRUE((*holder)->lease_ended().ok());
}

}  // namespace
}  // namespace gpurun::server
