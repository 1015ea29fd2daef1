// Worker refusals: a client with an unacceptable message gets the reason, inside TLS between only
// the two, or the session ends. The next client is served.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "client/attach/attach.h"
#include "client/control/control_link.h"
#include "driver_abi/row.h"
#include "protocol/control/control.h"
#include "protocol/control/rows_agreement.h"
#include "protocol/control/session_identity.h"
#include "server/daemon/daemon.h"
#include "transport/loopback/connection.h"
#include "transport/tls/connection.h"

namespace gpurun {
namespace {

namespace tls = transport::tls;
constexpr std::chrono::seconds kLong{60};

// A gpurund that accepts only TLS, with real workers, and a lease of its GPUs.
class WorkerRefusal : public testing::Test {
 protected:
  void SetUp() override {
    server::ProcessSettings settings;
    settings.worker_path = WORKER_PATH;
    settings.driver_path = NULL_DEVICE;
    spawner_ = server::make_process_spawner(settings);
    server::DaemonOptions options;
    options.devices = 1;
    options.tls_only = true;
    options.identity = *tls::Identity::make("here");
    auto listener = transport::listen("tcp://127.0.0.1:0");
    ASSERT_TRUE(listener.ok());
    client::LinkSecurity security;
    security.always_tls = true;
    security.fingerprint = fingerprint_ = options.identity->fingerprint();
    daemon_ = *server::Daemon::create(*std::move(listener), std::move(options), *spawner_);
    serving_ = std::thread([this] { EXPECT_TRUE(daemon_->run().ok()); });
    link_ = *client::ControlLink::connect(daemon_->address(), {}, Deadline::in(kLong), security);
    client::LeaseRequest request;
    request.devices = 1;
    session_ = *link_->request_lease(request);
    ASSERT_TRUE(session_.encrypted);
  }
  void TearDown() override {
    if (daemon_ != nullptr) daemon_->stop();
    if (serving_.joinable()) serving_.join();
  }

  // The Attach message of an honest client on connection `index` of a session of two.
  protocol::Attach words(std::uint16_t index) const {
    protocol::Attach attach;
    attach.version = protocol::our_version(protocol::Sender::kClient);
    attach.rows = protocol::rows_digest(driver_abi::rows());
    attach.lease = session_.lease;
    attach.ticket = session_.ticket;
    attach.session.fill(session_number_);
    attach.nonce.fill(6);
    attach.index = index;
    attach.count = 2;
    return attach;
  }
  protocol::Key session_key() const {
    return protocol::tls_session_key(session_.ticket_key, session_.challenge, words(0).session);
  }
  protocol::Key attach_key() const {
    return protocol::attach_key_inside(session_key(), words(0).nonce, words(0).session);
  }

  Result<std::unique_ptr<transport::Connection>> open(std::uint16_t index,
                                                      const protocol::Attach& said) const {
    const Deadline deadline = Deadline::in(kLong);
    auto connection = transport::connect("tcp://" + daemon_->address(), deadline);
    if (!connection.ok()) return connection.status();
    const protocol::Attach honest = words(index);
    tls::ServerTrust trust;
    trust.key = {protocol::encode_identity(
                     {honest.lease, honest.ticket, honest.session, index, honest.count}),
                 session_key()};
    auto channel = (*tls::Handshake::of_client(trust))->finish(**connection, deadline);
    if (!channel.ok()) return channel.status();
    auto secured = tls::secure(*std::move(connection), *std::move(channel));
    if (!secured.ok()) return secured.status();
    const Status sent = protocol::send_control(**secured, said, attach_key(),
                                               protocol::Sender::kClient, said.index, deadline);
    if (!sent.ok()) return sent;
    return secured;
  }

  // A valid first message of TLS, and no more.
  Bytes first_word(std::uint16_t index) const {
    const protocol::Attach honest = words(index);
    tls::ServerTrust trust;
    trust.key = {protocol::encode_identity(
                     {honest.lease, honest.ticket, honest.session, index, honest.count}),
                 session_key()};
    auto pair = transport::loopback::connect_pair();
    const auto handshake = *tls::Handshake::of_client(trust);
    EXPECT_FALSE(handshake->finish(*pair.first, Deadline::in(std::chrono::milliseconds(1))).ok());
    Bytes hello(4096);
    const auto bytes = pair.second->receive(hello, 1, Deadline::in(kLong));
    hello.resize(bytes.ok() ? *bytes : 0);
    return hello;
  }

  // The number that gpurund counts.
  unsigned workers() const {
    client::LinkSecurity security;
    security.always_tls = true;
    security.fingerprint = fingerprint_;
    const auto link =
        client::ControlLink::connect(daemon_->address(), {}, Deadline::in(kLong), security);
    const auto listing = link.ok() ? (*link)->list() : Result<protocol::Listing>(link.status());
    EXPECT_TRUE(listing.ok()) << listing.status().to_string();
    return listing.ok() ? listing->workers : ~0u;
  }
  bool no_worker_stays() const {
    const Deadline deadline = Deadline::in(kLong);
    while (workers() != 0) {
      if (deadline.passed()) return false;
      std::this_thread::yield();
    }
    return true;
  }

  // Sends each message on its own connection. Returns the refusal's reason, or how the session
  // ended.
  std::string heard(const protocol::Attach& first, const protocol::Attach& second) const {
    auto other = std::async(std::launch::async, [&] { return open(1, second); });
    const auto log = open(0, first);
    const auto lane = other.get();  // Stays open meanwhile.
    if (!log.ok()) return "no log: " + log.status().to_string();
    const auto frame =
        protocol::receive_control(**log, limits::kFrameBytesMax, Deadline::in(kLong));
    if (!frame.ok()) return frame.status().code() == Code::kPeerGone ? "gone" : "no frame";
    const auto message = protocol::decode(frame->payload);
    const auto* refused = message.ok() ? std::get_if<protocol::Refused>(&*message) : nullptr;
    return refused == nullptr ? "no refusal" : "refused: " + refused->reason;
  }

  std::unique_ptr<server::WorkerSpawner> spawner_;
  std::unique_ptr<server::Daemon> daemon_;
  std::thread serving_;
  tls::Fingerprint fingerprint_{};
  std::unique_ptr<client::ControlLink> link_;
  client::SessionData session_;
  std::uint8_t session_number_ = 1;  // Each session attaches once.
};

TEST_F(WorkerRefusal, RefusalOfOtherVersionNamesSideToUpdate) {
  for (const int difference : {-1, 1}) {
    ++session_number_;
    protocol::Attach first = words(0), second = words(1);
    first.version.protocol += static_cast<unsigned>(difference);
    second.version.protocol = first.version.protocol;
    const std::string text = heard(first, second);
    EXPECT_EQ(text.rfind("refused: ", 0), 0u) << text;
    EXPECT_NE(text.find(difference < 0 ? "update the client" : "update the server"),
              std::string::npos)
        << text;
  }
  EXPECT_TRUE(client::attach(session_, {}).ok());
}

TEST_F(WorkerRefusal, MismatchedAttachEndsSession) {
  protocol::Attach first = words(0);
  first.lease[0] ^= 1;
  EXPECT_EQ(heard(first, words(1)), "gone");
  ++session_number_;
  protocol::Attach second = words(1);
  second.index = 0;
  EXPECT_EQ(heard(words(0), second), "gone");
  ++session_number_;
  second = words(1);
  second.version.features.offered ^= 1;
  EXPECT_EQ(heard(words(0), second), "gone");
  EXPECT_TRUE(client::attach(session_, {}).ok());
}

// The ticket is valid, so a worker has started and answered. It ends when the connections end, or
// when they send garbage. Meanwhile it delays no other client.
TEST_F(WorkerRefusal, IncompleteHandshakeDoesNotBlockOtherClients) {
  const Bytes garbage(100, std::byte{0x17});
  for (const bool says_garbage : {false, true}) {
    ++session_number_;
    std::vector<std::unique_ptr<transport::Connection>> halves;
    for (const auto index : {std::uint16_t{0}, std::uint16_t{1}}) {
      auto connection = *transport::connect("tcp://" + daemon_->address(), Deadline::in(kLong));
      const Bytes hello = first_word(index);
      const ByteView part(hello);
      ASSERT_TRUE(connection->send({&part, 1}, Deadline::in(kLong)).ok());
      halves.push_back(std::move(connection));
    }
    // The worker's first message.
    Bytes answer(5);
    ASSERT_TRUE(halves[0]->receive(answer, answer.size(), Deadline::in(kLong)).ok());
    EXPECT_EQ(answer[0], std::byte{22});
    EXPECT_EQ(workers(), 1u);
    EXPECT_TRUE(client::attach(session_, {}).ok());
    const ByteView noise(garbage);
    const auto before = std::chrono::steady_clock::now();
    if (says_garbage) {
      EXPECT_TRUE(halves[0]->send({&noise, 1}, Deadline::in(kLong)).ok());
    } else {
      halves.clear();
    }
    EXPECT_TRUE(no_worker_stays());
    // The worker does not wait for the other connection, which sends nothing more.
    EXPECT_LT(std::chrono::steady_clock::now() - before,
              std::chrono::seconds(limits::kHandshakeDeadlineS) / 2);
  }
}

}  // namespace
}  // namespace gpurun
