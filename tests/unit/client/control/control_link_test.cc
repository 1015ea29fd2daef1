// ControlLink inside TLS, from the client's side: the request goes out before the server has sent
// anything after the handshake, proved for this channel alone. The test plays the server. It may
// have another version, refuse, not know the secret, or not be the named server. In each case the
// server gets what it should, and the user gets the right message.
#include "client/control/control_link.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>

#include "transport/tls/connection.h"

namespace gpurun::client {
namespace {

namespace tls = transport::tls;
using protocol::Sender;
using transport::Connection;

Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }
Bytes secret() { return Bytes(16, std::byte{0x5a}); }

// All messages of a client, in order.
struct Said {
  protocol::Hello hello;
  std::optional<protocol::TokenProof> proof;
  protocol::ControlFrame request;
};

template <typename Message>
Result<Message> hear(Connection& link) {
  const auto frame = protocol::receive_control(link, limits::kHelloBytesMax, soon());
  if (!frame.ok()) return frame.status();
  const auto message = protocol::decode(frame->payload);
  if (!message.ok()) return message.status();
  if (const auto* wanted = std::get_if<Message>(&*message)) return *wanted;
  return Status(Code::kProtocol, "another message came");
}

Result<Said> hear_all(Connection& link) {
  const auto hello = hear<protocol::Hello>(link);
  if (!hello.ok()) return hello.status();
  Said said{*hello, {}, {}};
  EXPECT_TRUE(link.holds_received()) << "the rest is in the record of the hello";
  if (hello->token) {
    const auto proof = hear<protocol::TokenProof>(link);
    if (!proof.ok()) return proof.status();
    said.proof = *proof;
  }
  auto request = protocol::receive_control(link, limits::kHelloBytesMax, soon());
  if (!request.ok()) return request.status();
  said.request = *std::move(request);
  return said;
}

protocol::Key key_of(ByteView with, const protocol::Nonce& exporter, const Said& said,
                     protocol::Link kind = protocol::Link::kControlInTls) {
  return protocol::link_key(with, kind, exporter, said.hello.nonce, {});
}

protocol::Grant a_grant() {
  protocol::Grant grant;
  grant.lease.fill(1);
  grant.ticket.fill(2);
  grant.devices = 1;
  return grant;
}

Status say(Connection& link, const protocol::ControlMessage& message) {
  return protocol::send_control(link, message, soon());
}
Status say(Connection& link, const protocol::ControlMessage& message, const protocol::Key& key) {
  return protocol::send_control(link, message, key, Sender::kServer, 0, soon());
}
protocol::Challenge challenge(std::uint32_t version = protocol::kVersion) {
  protocol::Challenge words{protocol::our_version(Sender::kServer), {}};
  words.version.protocol = version;
  return words;
}

class ControlLinkInTls : public testing::Test {
 protected:
  using Act = std::function<void(Connection& link, const protocol::Nonce& exporter)>;

  void SetUp() override {
    auto listener = transport::listen("tcp://127.0.0.1:0");
    ASSERT_TRUE(listener.ok());
    listener_ = *std::move(listener);
    identity_ = *tls::Identity::make("here");
    security_.always_tls = true;
    security_.fingerprint = identity_->fingerprint();
  }
  // Accepts a client, shakes hands, runs `act`, and hangs up.
  std::future<void> play(const Act& act) {
    return std::async(std::launch::async, [this, act] {
      auto connection = listener_->accept(soon());
      ASSERT_TRUE(connection.ok()) << connection.status().to_string();
      auto channel = (*tls::Handshake::of_server(identity_))->finish(**connection, soon());
      ASSERT_TRUE(channel.ok()) << channel.status().to_string();
      const protocol::Nonce exporter = channel->binding;
      tls::TlsOptions options;
      options.reads_ahead = false;
      const auto link = *tls::secure(*std::move(connection), *std::move(channel), options);
      act(*link, exporter);
      EXPECT_TRUE(hears_the_end(*link));
    });
  }
  static bool hears_the_end(Connection& link) {
    std::byte one;
    for (;;) {
      const auto got = link.receive({&one, 1}, 1, soon());
      if (!got.ok()) return got.status().code() == Code::kPeerGone;
    }
  }
  std::unique_ptr<ControlLink> connect(const protocol::Token* token = nullptr) const {
    auto link =
        token == nullptr
            ? ControlLink::connect(listener_->address(), secret(), soon(), security_)
            : ControlLink::connect_with_token(listener_->address(), *token, soon(), security_);
    EXPECT_TRUE(link.ok()) << link.status().to_string();
    return link.ok() ? *std::move(link) : nullptr;
  }
  // The result of a lease request to a server that does `act`.
  Status asked_of(const Act& act, bool known) {
    const auto server = play(act);
    const auto link = connect();
    const Status status = link->request_lease({}).status();
    EXPECT_EQ(link->server_is_known(), known);
    return status;
  }

  std::unique_ptr<transport::Listener> listener_;
  std::shared_ptr<const tls::Identity> identity_;
  LinkSecurity security_;
};

TEST_F(ControlLinkInTls, SendsRequestBeforeServerAnswers) {
  const protocol::Token token = *protocol::make_token(std::nullopt);
  for (const bool with_token : {false, true}) {
    protocol::Key key{};
    const auto heard_by = [&](Connection& link, const protocol::Nonce& exporter) {
      const auto said = hear_all(link);
      ASSERT_TRUE(said.ok()) << said.status().to_string() << ": it waits for an answer";
      ASSERT_EQ(said->proof.has_value(), with_token);
      const Bytes own = secret();
      key = key_of(with_token ? bytes_of(token.secret) : ByteView(own), exporter, *said);
      EXPECT_TRUE(protocol::proved(said->request, key, Sender::kClient, 0));
      if (!with_token) return;
      EXPECT_EQ(*said->hello.token, token.id);
      EXPECT_EQ(protocol::unmask_token(said->proof->masked, protocol::token_check(token.secret),
                                       exporter, said->hello.nonce, token.id),
                token.secret);
    };
    {
      auto server = play([&](Connection& link, const protocol::Nonce& exporter) {
        heard_by(link, exporter);
        ASSERT_TRUE(say(link, challenge()).ok());
        ASSERT_TRUE(say(link, a_grant(), key).ok());
      });
      auto link = connect(with_token ? &token : nullptr);
      EXPECT_FALSE(link->server_is_known());
      const auto session = link->request_lease({});
      ASSERT_TRUE(session.ok()) << session.status().to_string();
      EXPECT_TRUE(session->encrypted);
      EXPECT_EQ(session->lease, a_grant().lease);
      EXPECT_TRUE(link->server_is_known());
      EXPECT_EQ(link->server_release(), protocol::kRelease);
      link.reset();
      server.get();
      EXPECT_EQ(session->ticket_key,
                protocol::ticket_key(protocol::lease_key(key, session->lease), session->ticket));
    }
    auto server = play([&](Connection& link, const protocol::Nonce& exporter) {
      heard_by(link, exporter);
      ASSERT_TRUE(say(link, challenge()).ok());
      ASSERT_TRUE(say(link, protocol::Listing{"7.7.7", 3, {}, 0, 0, 0, 0, {}}, key).ok());
    });
    auto link = connect(with_token ? &token : nullptr);
    const auto listing = link->list();
    ASSERT_TRUE(listing.ok()) << listing.status().to_string();
    EXPECT_EQ(listing->waiting, 3u);
    link.reset();
    server.get();
  }
}

TEST_F(ControlLinkInTls, VersionMismatchNamesSideToUpdate) {
  for (const auto& [version, side] : {std::pair(protocol::kVersion + 1, "update the client"),
                                      {protocol::kVersion - 1, "update the server"}}) {
    const Status status = asked_of(
        [said = version](Connection& link, const auto&) {
          ASSERT_TRUE(hear<protocol::Hello>(link).ok());
          ASSERT_TRUE(say(link, challenge(said)).ok());
        },
        false);
    EXPECT_EQ(status.code(), Code::kRefused);
    EXPECT_NE(status.message().find(side), std::string::npos) << status.message();
  }
}

TEST_F(ControlLinkInTls, ForwardsRefusalBeforeOrAfterChallenge) {
  for (const bool challenged : {false, true}) {
    const Status status = asked_of(
        [challenged](Connection& link, const auto&) {
          ASSERT_TRUE(hear<protocol::Hello>(link).ok());
          if (challenged) ASSERT_TRUE(say(link, challenge()).ok());
          ASSERT_TRUE(say(link, protocol::Refused{"because of the weather"}).ok());
        },
        challenged);
    EXPECT_EQ(status.code(), Code::kRefused);
    EXPECT_NE(status.message().find("because of the weather"), std::string::npos);
  }
}

TEST_F(ControlLinkInTls, RejectsServerWithoutProofForThisChannel) {
  const Bytes own = secret();
  const std::pair<const char*, std::function<protocol::Key(const protocol::Nonce&, const Said&)>>
      impostors[] = {{"no secret", [](const auto& exporter,
                                      const Said& said) { return key_of({}, exporter, said); }},
                     {"the proof of another channel",
                      [&](protocol::Nonce exporter, const Said& said) {
                        exporter[0] ^= 1;
                        return key_of(own, exporter, said);
                      }},
                     {"the nonce that it sends",
                      [&](const auto&, const Said& said) { return key_of(own, {}, said); }},
                     {"a proof as outside TLS", [&](const auto& exporter, const Said& said) {
                        return key_of(own, exporter, said, protocol::Link::kControl);
                      }}};
  for (const auto& [name, key] : impostors) {
    const Status status = asked_of(
        [key_by = key](Connection& link, const protocol::Nonce& exporter) {
          const auto said = hear_all(link);
          ASSERT_TRUE(said.ok());
          ASSERT_TRUE(say(link, challenge()).ok());
          ASSERT_TRUE(say(link, a_grant(), key_by(exporter, *said)).ok());
        },
        true);
    EXPECT_EQ(status.code(), Code::kProtocol) << name;
    EXPECT_NE(status.message().find("does not know our secret"), std::string::npos) << name;
  }
}

TEST_F(ControlLinkInTls, RejectsGrantBeforeServerVersion) {
  const Status status = asked_of(
      [](Connection& link, const protocol::Nonce& exporter) {
        const auto said = hear_all(link);
        ASSERT_TRUE(said.ok());
        ASSERT_TRUE(say(link, a_grant(), key_of(secret(), exporter, *said)).ok());
      },
      false);
  EXPECT_EQ(status.code(), Code::kProtocol) << status.to_string();
}

TEST_F(ControlLinkInTls, SendsNothingToServerWithWrongKey) {
  security_.fingerprint->front() ^= 1;
  const auto server = play([](Connection& link, const auto&) {
    std::byte one;
    EXPECT_EQ(link.receive({&one, 1}, 1, soon()).status().code(), Code::kPeerGone);
  });
  const auto link = ControlLink::connect(listener_->address(), secret(), soon(), security_);
  EXPECT_EQ(link.status().code(), Code::kRefused) << link.status().to_string();
}

TEST_F(ControlLinkInTls, ReportsRuleThatAcceptedKey) {
  char folder[] = "/tmp/gpurun-rules-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string known = std::string(folder) + "/known", authority = std::string(folder) + "/ca";
  identity_ = *tls::Identity::make("localhost");
  std::ofstream(authority) << *identity_->certificate_pem();
  const auto named = std::optional(identity_->fingerprint());
  const std::string bound = listener_->address();
  const std::string address = "localhost" + bound.substr(bound.rfind(':'));
  const auto rule = [&](const std::optional<tls::Fingerprint>& fingerprint,
                        const std::string& authorities) {
    security_.fingerprint = fingerprint;
    security_.authorities_file = authorities;
    security_.known_servers = known;
    const auto server = play([](Connection&, const auto&) {});
    const auto link = ControlLink::connect(address, secret(), soon(), security_);
    EXPECT_TRUE(link.ok()) << link.status().to_string();
    if (!link.ok()) return KeyRule::kNotEncrypted;
    EXPECT_EQ((*link)->server_key().shown, *named);
    return (*link)->server_key().rule;
  };
  EXPECT_EQ(rule({}, ""), KeyRule::kMetNow);
  EXPECT_EQ(rule({}, ""), KeyRule::kMetBefore);
  // A key that the command line names, or an authority, goes before the pin.
  ASSERT_TRUE(pin_server(known, address, *named).ok());
  EXPECT_EQ(rule({}, ""), KeyRule::kPinned);
  EXPECT_EQ(rule(named, ""), KeyRule::kFingerprint);
  EXPECT_EQ(rule({}, authority), KeyRule::kAuthorities);
  EXPECT_EQ(rule(named, authority), KeyRule::kAuthoritiesFingerprint);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gpurun::client
