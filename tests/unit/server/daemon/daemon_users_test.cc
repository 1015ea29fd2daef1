// User tokens at the daemon: which user owns a lease, what happens to running sessions, and the
// bounds of each user. A wrong, revoked or expired token gets a refusal with a message.
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "base/hex.h"
#include "tests/unit/server/daemon/daemon_under_test.h"

namespace gpurun::server {
namespace {

using protocol::Token;
using protocol::TokenEntry;
using protocol::TokenState;

class DaemonUsersTest : public DaemonTest {
 protected:
  void SetUp() override {
    char name[] = "/tmp/gpurun-daemon-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    path_ = folder_ + "/tokens";
  }
  void TearDown() override {
    DaemonTest::TearDown();
    std::filesystem::remove_all(folder_);
  }
  void serve(UserLimitsTable limits = {}) {
    DaemonOptions options;
    options.devices = 4;
    options.handshake_deadline = kLong;
    options.overtaken_deadline = milliseconds(1);  // For leases that do not end meanwhile.
    options.tokens = std::make_shared<TokenStore>(path_);
    options.user_limits = std::move(limits);
    options.audit = *AuditLog::open(folder_ + "/audit");
    start(std::move(options));
  }
  Token make(const std::string& user, std::int64_t expires = 0) {
    const Token token = *protocol::make_token(std::nullopt);
    change([&](std::vector<TokenEntry>* entries) {
      TokenEntry entry;
      entry.id = token.id;
      entry.user = user;
      entry.check = protocol::token_check(token.secret);
      entry.expires = expires;
      entries->push_back(entry);
    });
    return token;
  }
  void change(const std::function<void(std::vector<TokenEntry>*)>& what) {
    ASSERT_TRUE(protocol::update_token_file(path_, [&](auto* entries) {
                  what(entries);
                  return Status();
                }).ok());
  }
  void change_all(const std::function<void(TokenEntry&)>& what) {
    change([&](std::vector<TokenEntry>* entries) {
      for (TokenEntry& entry : *entries) what(entry);
    });
  }
  void set(const Token& token, TokenState state) {
    change_all([&](TokenEntry& entry) {
      if (entry.id == token.id) entry.state = state;
    });
  }
  std::unique_ptr<client::ControlLink> link_of(const Token& token) {
    auto result = client::ControlLink::connect_with_token(daemon_->address(), token, soon());
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? *std::move(result) : nullptr;
  }
  // The message of a refused lease. Empty when it is granted.
  std::string refusal_of(const Token& token, unsigned gpus = 1) {
    const auto session = link_of(token)->request_lease(ask(gpus));
    if (session.ok()) return {};
    EXPECT_EQ(session.status().code(), Code::kRefused) << session.status().to_string();
    return session.status().message();
  }
  static std::string name_of(const Token& token) { return hex_of(bytes_of(token.id)); }
  std::string audited() {
    std::ifstream file(folder_ + "/audit");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Waits until the lease has ended. Returns its message.
  static std::string end_of(client::ControlLink& link) {
    pollfd ready = {link.fd(), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, soon().poll_timeout_ms()), 1);
    return link.lease_ended().message();
  }
  std::string folder_, path_;
};

testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << part << "' is not in: " << text;
}

TEST_F(DaemonUsersTest, WorkerListingAndAuditLogNameLeaseUser) {
  const Token token = make("anna");
  serve();
  auto annas = link_of(token);
  const auto session = annas->request_lease(ask(1));
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  auto operators = link();
  ASSERT_TRUE(operators->request_lease(ask(1)).ok());
  const auto attached = client::attach(*session, {});
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  EXPECT_TRUE(workers_.wait([this] { return workers_.user.name == "anna"; }));
  EXPECT_EQ(workers_.user.token, name_of(token));
  const auto listing = link_of(token)->list();
  ASSERT_TRUE(listing.ok()) << listing.status().to_string();
  EXPECT_EQ(listing->gpus[0].user, "anna");
  EXPECT_EQ(listing->gpus[1].user, protocol::kOperator);
  EXPECT_EQ(listing->gpus[2].user, "");
  end_lease(*annas);
  const std::string lines = audited();
  const std::string who = "user=anna token=" + name_of(token) + " from=\"tcp ";
  for (const char* event : {" lease.granted ", " session.started ", " lease.ended "}) {
    EXPECT_TRUE(has(lines, event + who));
  }
  EXPECT_TRUE(has(lines, " session.ended user=anna"));
  EXPECT_TRUE(has(lines, " lease.granted user=operator from="));
  EXPECT_TRUE(has(lines, std::string(" release=") + protocol::kRelease + "\n"));
  EXPECT_FALSE(has(lines, hex_of(bytes_of(token.secret))));
}

TEST_F(DaemonUsersTest, InvalidTokenIsRefused) {
  const Token token = make("anna");
  serve();
  const std::string unknown = "this server does not know token " + name_of(token);
  Token wrong = token;
  wrong.secret[5] ^= 1;
  EXPECT_TRUE(has(refusal_of(wrong), unknown));
  // A thief of the file has this, and nothing that gives more access.
  wrong.secret = protocol::token_check(token.secret);
  EXPECT_TRUE(has(refusal_of(wrong), unknown));
  wrong = token;
  wrong.id[0] ^= 1;
  EXPECT_TRUE(has(refusal_of(wrong), "this server does not know token " + name_of(wrong)));
  EXPECT_EQ(link_of(wrong)->list().status().code(), Code::kRefused);
  // A token's secret is not the server's secret.
  EXPECT_EQ(link(Bytes(token.secret.size()))->request_lease(ask(1)).status().code(),
            Code::kRefused);
  EXPECT_TRUE(has(audited(), " link.refused from=\"tcp "));
  EXPECT_EQ(refusal_of(token), "");
}

TEST_F(DaemonUsersTest, ServerWithoutTokensRefusesToken) {
  start(1);
  EXPECT_TRUE(has(refusal_of(*protocol::make_token(std::nullopt)), "knows no tokens"));
}

TEST_F(DaemonUsersTest, ExpiredTokenIsRefusedButItsLeaseContinues) {
  const Token token = make("anna", seconds_now() + 3600);
  serve();
  auto running = link_of(token);
  const auto session = running->request_lease(ask(1));
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  change_all([](TokenEntry& entry) { entry.expires = 1'790'000'000; });
  EXPECT_TRUE(has(refusal_of(token),
                  "token " + name_of(token) + " of user anna expired on 2026-09-21 14:13 UTC"));
  EXPECT_FALSE(link_of(token)->list().ok());
  EXPECT_TRUE(client::attach(*session, {}).ok());
  EXPECT_TRUE(running->lease_ended().ok());
}

TEST_F(DaemonUsersTest, RevokingTokenEndsItsLeasesAndWaitingRequests) {
  const Token token = make("anna");
  const Token annas_other = make("anna");
  serve();
  auto running = link_of(token);
  const auto session = running->request_lease(ask(3));
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  auto other = link_of(annas_other);
  ASSERT_TRUE(other->request_lease(ask(1)).ok());
  ASSERT_TRUE(client::attach(*session, {}).ok());
  std::promise<void> queued;
  auto waiting = std::async(std::launch::async, [&] {
    auto request = ask(1, kLong);
    request.on_queued = [&](const protocol::Queued&, bool) { queued.set_value(); };
    return link_of(token)->request_lease(request).status().message();
  });
  queued.get_future().wait();
  set(token, TokenState::kRevoked);
  const std::string sentence = "token " + name_of(token) + " of user anna was revoked";
  // The refusal is immediate, with one of two messages: the second one if the link has already been
  // told.
  EXPECT_EQ(client::attach(*session, {}).status().code(), Code::kRefused);
  EXPECT_TRUE(has(refusal_of(token), sentence));
  EXPECT_TRUE(has(end_of(*running), sentence));
  EXPECT_TRUE(has(waiting.get(), sentence));
  EXPECT_TRUE(workers_.wait([this] { return workers_.killed == 1; }));
  end_lease(*running);
  EXPECT_EQ(client::attach(*session, {}).status().code(), Code::kRefused);
  EXPECT_TRUE(other->lease_ended().ok());
  EXPECT_TRUE(link()->request_lease(ask(3, kLong)).ok());
  EXPECT_TRUE(has(audited(), " token.revoked user=anna token=" + name_of(token) + " leases=end"));
  EXPECT_TRUE(has(audited(), "reason=\"" + sentence + "\""));
}

TEST_F(DaemonUsersTest, RemovingTokenFileRevokesItsTokens) {
  const Token token = make("anna");
  serve();
  auto running = link_of(token);
  ASSERT_TRUE(running->request_lease(ask(1)).ok());
  ASSERT_EQ(unlink(path_.c_str()), 0);
  EXPECT_TRUE(has(end_of(*running), "was revoked"));
  EXPECT_TRUE(has(refusal_of(token), "does not know token"));
}

TEST_F(DaemonUsersTest, RemovingOneTokenRevokesOnlyThatToken) {
  const Token token = make("anna");
  const Token annas_other = make("anna");
  const Token bens = make("ben");
  serve();
  auto running = link_of(token), other = link_of(annas_other), third = link_of(bens);
  ASSERT_TRUE(running->request_lease(ask(1)).ok());
  ASSERT_TRUE(other->request_lease(ask(1)).ok());
  const auto kept = third->request_lease(ask(1));
  ASSERT_TRUE(kept.ok()) << kept.status().to_string();
  change([&](std::vector<TokenEntry>* entries) {
    EXPECT_EQ(std::erase_if(*entries, [&](const auto& entry) { return entry.id == token.id; }), 1u);
  });
  EXPECT_TRUE(has(end_of(*running), "token " + name_of(token) + " of user anna was revoked"));
  EXPECT_TRUE(has(refusal_of(token), "does not know token"));
  // The daemon handles a change as a whole, so it has seen the other tokens, too.
  EXPECT_TRUE(other->lease_ended().ok());
  EXPECT_TRUE(third->lease_ended().ok());
  EXPECT_TRUE(client::attach(*kept, {}).ok());
  EXPECT_TRUE(link_of(annas_other)->list().ok());
}

TEST_F(DaemonUsersTest, RetiringTokenKeepsItsLease) {
  const Token token = make("anna");
  const Token later = make("anna");
  serve();
  auto running = link_of(token);
  const auto session = running->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  set(token, TokenState::kRetired);
  EXPECT_TRUE(has(refusal_of(token), "was revoked"));
  // The daemon handles changes in order, so it has handled this one.
  auto after = link_of(later);
  ASSERT_TRUE(after->request_lease(ask(1)).ok());
  set(later, TokenState::kRevoked);
  EXPECT_TRUE(has(end_of(*after), "was revoked"));
  EXPECT_TRUE(running->lease_ended().ok());
  EXPECT_TRUE(client::attach(*session, {}).ok());
}

TEST_F(DaemonUsersTest, EnforcesUserLimits) {
  UserLimitsTable limits;
  limits.every.leases = 2;
  limits.every.gpus = 3;
  limits.every.sessions = 1;
  const Token token = make("anna");
  const Token bens = make("ben");
  serve(limits);
  auto first = link_of(token);
  const auto session = first->request_lease(ask(1));
  ASSERT_TRUE(session.ok());
  EXPECT_TRUE(has(refusal_of(token, 3), "user anna has 1 GPU and wants 3; this server allows 3"));
  auto second = link_of(token);
  ASSERT_TRUE(second->request_lease(ask(1)).ok());
  EXPECT_TRUE(has(refusal_of(token), "user anna has 2 leases"));
  EXPECT_EQ(refusal_of(bens), "");
  second.reset();
  EXPECT_EQ(refusal_of(token), "") << "what was hung up just now counts no more";
  ASSERT_TRUE(client::attach(*session, {}).ok());
  const auto attached = client::attach(*session, {});
  EXPECT_EQ(attached.status().code(), Code::kRefused);
  EXPECT_TRUE(has(attached.status().message(), "user anna has 1 attached processes"));
  EXPECT_EQ(workers_.started, 1);
}

TEST_F(DaemonUsersTest, TokensFromFileReadableByOthersAreRefused) {
  const Token token = make("anna");
  serve();
  auto running = link_of(token);
  ASSERT_TRUE(running->request_lease(ask(1)).ok());
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  EXPECT_TRUE(has(refusal_of(token), "cannot read its tokens"));
  EXPECT_TRUE(link()->request_lease(ask(1)).ok());
  EXPECT_TRUE(running->lease_ended().ok());
}

}  // namespace
}  // namespace gpurun::server
