// RDMA exchange: both ends of a connection over TCP or TLS agree to go on over RDMA, or say why
// not.
#include "transport/rdma/exchange.h"

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "tests/support/rdma_pair.h"
#include "transport/tls/connection.h"

namespace gpurun::transport::rdma {
namespace {

using test::soon;
using test::VerbsDouble;

struct End {
  std::unique_ptr<Connection> connection;
  Connection* below = nullptr;
};

std::unique_ptr<tls::Handshake> handshake(bool connects) {
  tls::PreSharedKey key;
  key.identity.push_back(std::byte{7});
  key.key.fill(7);
  tls::ServerTrust trust;
  trust.key = key;
  auto made = connects ? tls::Handshake::of_client(trust) : tls::Handshake::of_server(key);
  EXPECT_TRUE(made.ok());
  return *std::move(made);
}

End secured(std::unique_ptr<Connection> socket, bool connects) {
  End end;
  end.below = socket.get();
  auto channel = handshake(connects)->finish(*socket, soon());
  EXPECT_TRUE(channel.ok()) << channel.status().to_string();
  auto made = tls::secure(std::move(socket), *std::move(channel));
  EXPECT_TRUE(made.ok());
  end.connection = *std::move(made);
  return end;
}

struct Ends {
  explicit Ends(bool encrypted) {
    auto listener = listen("tcp://127.0.0.1:0");
    auto accepting = std::async(std::launch::async, [&] {
      auto socket = (*listener)->accept(soon());
      return encrypted ? secured(*std::move(socket), false) : End{*std::move(socket)};
    });
    auto socket = connect("tcp://" + (*listener)->address(), soon());
    client = encrypted ? secured(*std::move(socket), true) : End{*std::move(socket)};
    server = accepting.get();
  }
  // Returns why the client stays with its connection.
  std::string agree(const Side& ours, const Side& theirs) {
    auto answered = std::async(std::launch::async, [&] {
      return answer(server.connection, server.below, theirs, soon());
    });
    auto asked = ask(*client.connection, ours, soon());
    EXPECT_TRUE(asked.ok()) << asked.status().to_string();
    auto entered = enter(client.connection, client.below, *std::move(asked), soon());
    EXPECT_TRUE(entered.ok()) << entered.status().to_string();
    auto answer = answered.get();
    EXPECT_TRUE(answer.ok()) << answer.status().to_string();
    agreement = *std::move(entered);
    // Both ends know what has been agreed.
    EXPECT_EQ(answer->why_none.empty(), agreement.why_none.empty());
    EXPECT_EQ(answer->ports.empty(), agreement.ports.empty());
    return agreement.why_none;
  }
  bool copy() {
    const Bytes whole = test::pattern(2 << 20, 3);
    return test::copies_one_way(*client.connection, *server.connection, whole) &&
           test::copies_one_way(*server.connection, *client.connection, whole);
  }

  End client;
  End server;
  Agreement agreement;
};

Side side_of(Result<std::unique_ptr<Fabric>>& fabric) {
  EXPECT_TRUE(fabric.ok()) << fabric.status().to_string();
  return {fabric->get(), {}};
}

TEST(RdmaExchange, BothEndsGoOnOverRdma) {
  for (const bool encrypted : {false, true}) {
    VerbsDouble::set("rdma0");
    auto fabric = test::any_fabric();
    Ends ends(encrypted);
    EXPECT_EQ(ends.agree(side_of(fabric), side_of(fabric)), "");
    EXPECT_EQ(ends.agreement.ports, "rdma0:1 to rdma0:1");
    EXPECT_TRUE(ends.copy());
    const verbs_double_counts before = VerbsDouble::counts();
    EXPECT_TRUE(ends.copy());
    EXPECT_GE(VerbsDouble::counts().posted_bytes - before.posted_bytes, 4U << 20) << encrypted;
  }
}

// The bytes come back to the socket, encrypted where it was.
TEST(RdmaExchange, FailureInMidCopyGoesBackToTheSocket) {
  for (const bool encrypted : {false, true}) {
    for (const unsigned posts : {3U, 20U, 30U}) {
      VerbsDouble::set("rdma0");
      auto fabric = test::any_fabric();
      Ends ends(encrypted);
      EXPECT_EQ(ends.agree(side_of(fabric), side_of(fabric)), "");
      VerbsDouble::inject("breaks_qp posts=" + std::to_string(posts));
      EXPECT_TRUE(ends.copy()) << encrypted << posts;
      const verbs_double_counts before = VerbsDouble::counts();
      EXPECT_TRUE(ends.copy()) << encrypted << posts;
      EXPECT_EQ(VerbsDouble::counts().post_calls, before.post_calls) << encrypted << posts;
    }
  }
}

TEST(RdmaExchange, EitherEndMayRefuseWithReason) {
  VerbsDouble::set("rdma0");
  auto fabric = test::any_fabric();
  const Side refuses{nullptr, "no trust\x1b"};
  Ends ends(false);
  EXPECT_EQ(ends.agree(side_of(fabric), refuses), "the server: no trust?");
  EXPECT_TRUE(ends.copy());
  Ends others(false);
  EXPECT_EQ(others.agree(refuses, side_of(fabric)), refuses.why_none);
  EXPECT_TRUE(others.copy());
}

// The words of an end that offers the queue pair of another machine.
Bytes words_with_foreign_gid(Fabric& fabric, int socket) {
  const Result<Gid> local = address_of(socket);
  EXPECT_TRUE(local.ok());
  auto end = fabric.make_end(*local, nullptr);
  EXPECT_TRUE(end.ok()) << end.status().to_string();
  Offer offer = (*end)->offer();
  offer.gid[15] = 77;
  Bytes words(256);
  std::memcpy(words.data(), &offer, sizeof offer);
  return words;
}

constexpr const char* kForeign =
    "the GID that the other end offers is not its address of the connection";

// Otherwise a client without a device could aim the server's device at any machine of the fabric.
TEST(RdmaExchange, ForeignGidIsRefusedByTheServer) {
  VerbsDouble::set("rdma0");
  auto fabric = test::any_fabric();
  ASSERT_TRUE(fabric.ok());
  Ends ends(false);
  const Bytes words = words_with_foreign_gid(**fabric, ends.client.connection->fd());
  ASSERT_TRUE(test::send_bytes(*ends.client.connection, words).ok());
  const verbs_double_counts before = VerbsDouble::counts();
  const auto said = answer(ends.server.connection, ends.server.below, side_of(fabric), soon());
  ASSERT_TRUE(said.ok()) << said.status().to_string();
  EXPECT_EQ(said->why_none, kForeign);
  const Bytes answered = test::receive_bytes(*ends.client.connection, 256);
  EXPECT_STREQ(reinterpret_cast<const char*>(answered.data()) + sizeof(Offer), kForeign);
  EXPECT_EQ(VerbsDouble::counts().post_calls, before.post_calls);
  EXPECT_TRUE(ends.copy());
}

TEST(RdmaExchange, ForeignGidIsRefusedByTheClient) {
  VerbsDouble::set("rdma0");
  auto fabric = test::any_fabric();
  ASSERT_TRUE(fabric.ok());
  Ends ends(false);
  auto asked = ask(*ends.client.connection, side_of(fabric), soon());
  ASSERT_TRUE(asked.ok());
  const Bytes words = words_with_foreign_gid(**fabric, ends.server.connection->fd());
  ASSERT_TRUE(test::send_bytes(*ends.server.connection, words).ok());
  auto entered = enter(ends.client.connection, ends.client.below, *std::move(asked), soon());
  ASSERT_TRUE(entered.ok()) << entered.status().to_string();
  EXPECT_EQ(entered->why_none, kForeign);
}

}  // namespace
}  // namespace gpurun::transport::rdma
