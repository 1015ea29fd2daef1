// ClientHello reader: gpurund reads the key's name and its proof from OpenSSL's message before
// anything is proved. It accepts nothing that is cut, doubled or altered.
#include "transport/tls/client_hello.h"

#include <gtest/gtest.h>

#include "transport/loopback/connection.h"
#include "transport/tls/handshake.h"

namespace gpurun::transport::tls {
namespace {

Secret key() {
  Secret secret;
  secret.fill(3);
  return secret;
}

Bytes identity() { return Bytes(61, std::byte{'i'}); }

// OpenSSL's message, as our client sends it.
Bytes hello(bool with_key) {
  loopback::Pair pair = loopback::connect_pair();
  ServerTrust trust;
  if (with_key) trust.key = PreSharedKey{identity(), key()};
  auto handshake = *Handshake::of_client(trust);
  const auto none = handshake->finish(*pair.first, Deadline::in(std::chrono::milliseconds(20)));
  EXPECT_EQ(none.status().code(), Code::kDeadline);
  Bytes bytes(4096);
  const auto got = pair.second->receive(bytes, 1, Deadline::in(std::chrono::seconds(10)));
  EXPECT_TRUE(got.ok());
  bytes.resize(got.ok() ? *got : 0);
  return bytes;
}

TEST(ClientHello, ReadsKeyIdentityAndBinder) {
  const Bytes record = hello(true);
  ASSERT_EQ(*hello_record_bytes(record), record.size());
  const auto offer = read_key_offer(record);
  ASSERT_TRUE(offer.ok() && offer->has_value());
  EXPECT_EQ(Bytes((*offer)->identity.begin(), (*offer)->identity.end()), identity());
  EXPECT_TRUE(binder_proves(**offer, key()));
  Secret other = key();
  other[31] ^= 1;
  EXPECT_FALSE(binder_proves(**offer, other));
}

TEST(ClientHello, HelloWithoutKeyHasNoOffer) {
  const auto offer = read_key_offer(hello(false));
  ASSERT_TRUE(offer.ok()) << offer.status().to_string();
  EXPECT_FALSE(offer->has_value());
}

// A change of any byte invalidates the proof, and no byte may be missing.
TEST(ClientHello, AlteredOrTruncatedHelloProvesNothing) {
  const Bytes record = hello(true);
  for (std::size_t at = 5; at < record.size(); ++at) {
    Bytes altered = record;
    altered[at] ^= std::byte{1};
    const auto offer = read_key_offer(altered);
    if (!offer.ok() || !offer->has_value()) continue;
    EXPECT_FALSE(binder_proves(**offer, key())) << at;
  }
  for (std::size_t bytes = 0; bytes < record.size(); ++bytes) {
    EXPECT_FALSE(read_key_offer(ByteView(record).first(bytes)).ok()) << bytes;
  }
  Bytes longer = record;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(read_key_offer(longer).ok());
}

TEST(ClientHello, RefusesOtherBytes) {
  for (const char* text :
       {"", "grun", "GET / HTTP/1.1", "\x16\x02\x01\x00\x05", "\x15\x03\x03\x00"}) {
    EXPECT_FALSE(hello_record_bytes(byte_view(text, std::char_traits<char>::length(text))).ok());
  }
}

}  // namespace
}  // namespace gpurun::transport::tls
