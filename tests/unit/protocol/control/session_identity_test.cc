// Session identity: the name of a session's key shows what it was made of, and nothing else is
// accepted as one. The keys that belong to it differ wherever they should.
#include "protocol/control/session_identity.h"

#include <gtest/gtest.h>

#include "protocol/limits.h"

namespace gpurun::protocol {
namespace {

SessionIdentity example() {
  SessionIdentity identity;
  identity.lease.fill(1);
  identity.ticket.fill(2);
  identity.session.fill(3);
  identity.index = 1;
  identity.count = limits::kConnectionsMax;
  return identity;
}

TEST(SessionIdentity, RoundTripsFields) {
  const auto read = decode_identity(encode_identity(example()));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->lease, example().lease);
  EXPECT_EQ(read->ticket, example().ticket);
  EXPECT_EQ(read->session, example().session);
  EXPECT_EQ(read->index, 1);
  EXPECT_EQ(read->count, limits::kConnectionsMax);
}

TEST(SessionIdentity, RefusesInvalidEncodings) {
  const Bytes good = encode_identity(example());
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(decode_identity(ByteView(good).first(bytes)).has_value());
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_identity(longer).has_value());
  Bytes other = good;
  other[0] ^= std::byte{1};
  EXPECT_FALSE(decode_identity(other).has_value());
  for (const auto& [index, count] : {std::pair<std::size_t, std::size_t>(0, 0),
                                     {0, 1},
                                     {2, 2},
                                     {0, limits::kConnectionsMax + 1}}) {
    SessionIdentity wrong = example();
    wrong.index = static_cast<std::uint16_t>(index);
    wrong.count = static_cast<std::uint16_t>(count);
    EXPECT_FALSE(decode_identity(encode_identity(wrong)).has_value()) << index << "/" << count;
  }
}

TEST(SessionIdentity, KeysDifferBySessionAndPurpose) {
  Key ticket{};
  ticket.fill(9);
  const Nonce challenge{}, nonce{};
  Id other{};
  other.fill(4);
  const Key session = tls_session_key(ticket, challenge, example().session);
  EXPECT_NE(session, tls_session_key(ticket, challenge, other));
  EXPECT_NE(session,
            link_key(bytes_of(ticket), Link::kAttach, challenge, nonce, example().session));
  EXPECT_NE(session, attach_key_inside(session, nonce, example().session));
  // A control link inside one channel, inside another one, and outside any.
  const Nonce one{}, two = session;
  const auto link = [&](Link kind, const Nonce& server) {
    return link_key(bytes_of(ticket), kind, server, nonce, Id{});
  };
  EXPECT_NE(link(Link::kControlInTls, one), link(Link::kControlInTls, two));
  EXPECT_NE(link(Link::kControlInTls, one), link(Link::kControl, one));
}

}  // namespace
}  // namespace gpurun::protocol
