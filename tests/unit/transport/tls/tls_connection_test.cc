// TLS transport, beyond the common promises: the RFC's own numbers, trust in keys and certificates,
// channel binding, altered records, renewed keys, and other implementations.
#include "transport/tls/connection.h"

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <future>

#include "transport/faulty/connection.h"
#include "transport/loopback/connection.h"
#include "transport/sockets/connection.h"

namespace gpurun::transport::tls {
namespace {

Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }

template <typename Container>
Container from_hex(std::string_view text, Container into) {
  std::size_t at = 0;
  for (auto& byte : into) {
    byte = static_cast<typename Container::value_type>(
        std::stoul(std::string(text.substr(2 * at++, 2)), nullptr, 16));
  }
  return into;
}
Secret secret_of(std::string_view text) { return from_hex(text, Secret{}); }
Bytes bytes_from(std::string_view text) { return from_hex(text, Bytes(text.size() / 2)); }
Bytes text_bytes(std::string_view text) {
  const ByteView view = byte_view(text.data(), text.size());
  return Bytes(view.begin(), view.end());
}

PreSharedKey key_of(std::string_view identity, std::uint8_t value) {
  PreSharedKey key{text_bytes(identity), {}};
  key.key.fill(value);
  return key;
}

struct Ends {
  Result<Channel> client = Status(Code::kInternal, "not run");
  Result<Channel> server = Status(Code::kInternal, "not run");
  std::unique_ptr<Connection> below_client, below_server;
};

Ends shake(std::unique_ptr<Handshake> client, std::unique_ptr<Handshake> server,
           loopback::Pair below = loopback::connect_pair()) {
  Ends ends;
  ends.below_client = std::move(below.first);
  ends.below_server = std::move(below.second);
  auto serving = std::async(std::launch::async, [&] {
    Result<Channel> channel = server->finish(*ends.below_server, soon());
    if (!channel.ok()) ends.below_server->shut_down();
    return channel;
  });
  ends.client = client->finish(*ends.below_client, soon());
  if (!ends.client.ok()) ends.below_client->shut_down();
  ends.server = serving.get();
  return ends;
}

Ends shake_with_keys(const PreSharedKey& client, const PreSharedKey& server) {
  ServerTrust trust;
  trust.key = client;
  return shake(*Handshake::of_client(trust), *Handshake::of_server(server));
}

Status send_one(Connection& to, ByteView bytes) { return to.send({&bytes, 1}, soon()); }

// RFC 8448, section 3: the server's and the client's keys of that trace, and its client's record.
TEST(TlsKeySchedule, MatchesRfc8448) {
  const Secret client =
      secret_of("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
  std::array<std::uint8_t, 16> key;
  std::array<std::uint8_t, 12> iv;
  expand_label(client, "key", {}, mutable_bytes(key.data(), key.size()));
  expand_label(client, "iv", {}, mutable_bytes(iv.data(), iv.size()));
  EXPECT_EQ(key, from_hex("17422dda596ed5d9acd890e3c63f5051", key));
  EXPECT_EQ(iv, from_hex("5b78923dee08579033e523d9", iv));
}

TEST(TlsRecord, MatchesRfc8448AndDetectsAlteration) {
  const Secret client =
      secret_of("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
  Bytes plain;
  for (int i = 0; i < 50; ++i) plain.push_back(static_cast<std::byte>(i));
  const Bytes expected = bytes_from(
      "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a2044"
      "1e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4");
  const auto made = [&client](bool to_seal) { return *Protection::create(client, to_seal); };
  auto sealer = made(true);
  const ByteView parts[] = {ByteView(plain).first(7), ByteView(plain).subspan(7)};
  Bytes record(sealed_record_bytes(plain.size()));
  ASSERT_TRUE(sealer->seal(Content::kApplicationData, parts, record.data()).ok());
  EXPECT_EQ(record, expected);

  // Opens the record again, split over two buffers. A flipped bit anywhere is detected.
  auto opener = made(false);
  Bytes first(20), rest(kSealedBytesMax);
  const auto opened = opener->open(record, first, rest);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->in_first, 20u);
  EXPECT_EQ(opened->in_rest, 30u);
  EXPECT_EQ(rest[29], std::byte{49});
  for (std::size_t at = 0; at < record.size(); ++at) {
    auto one = made(false);
    Bytes altered = record;
    altered[at] ^= std::byte{0x40};
    EXPECT_EQ(one->open(altered, first, rest).status().code(), Code::kProtocol) << at;
    EXPECT_EQ(first, Bytes(20)) << "what nobody has proved is wiped";
  }
}

// A renewed key protects the records that follow it.
TEST(TlsRecord, UpdateReplacesKeyOnBothEnds) {
  const Secret secret = key_of("", 9).key;
  auto sealer = *Protection::create(secret, true), opener = *Protection::create(secret, false);
  const auto pass = [&](std::size_t bytes) {
    const Bytes plain(bytes, std::byte{3});
    const ByteView part = plain;
    Bytes record(sealed_record_bytes(plain.size()));
    EXPECT_TRUE(sealer->seal(Content::kApplicationData, {&part, 1}, record.data()).ok());
    Bytes first(plain.size()), rest(kSealedBytesMax);
    return opener->open(record, first, rest).ok() && first == plain;
  };
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100}, kPlainBytesMax}) {
    EXPECT_TRUE(pass(bytes));
  }
  ASSERT_TRUE(sealer->update().ok());
  ASSERT_TRUE(opener->update().ok());
  EXPECT_EQ(sealer->sequence(), 0u);
  EXPECT_TRUE(pass(100));
  ASSERT_TRUE(sealer->update().ok());
  EXPECT_FALSE(pass(100)) << "the other end has the key before";
}

// After the handshake both ends have the same channel, and know each other's identity.
TEST(TlsHandshake, SharedKeyGivesBothEndsOneChannel) {
  Ends ends = shake_with_keys(key_of("who", 1), key_of("who", 1));
  ASSERT_TRUE(ends.client.ok()) << ends.client.status().to_string();
  ASSERT_TRUE(ends.server.ok()) << ends.server.status().to_string();
  EXPECT_EQ(ends.client->binding, ends.server->binding);
  EXPECT_EQ(ends.client->client_traffic, ends.server->client_traffic);
  EXPECT_NE(ends.client->client_traffic, ends.client->server_traffic);
  const Ends again = shake_with_keys(key_of("who", 1), key_of("who", 1));
  EXPECT_NE(again.client->binding, ends.client->binding) << "each channel has its own";
}

TEST(TlsHandshake, WrongKeyOrIdentityFailsOnBothEnds) {
  for (const auto& [client, server] : {std::pair(key_of("who", 1), key_of("who", 2)),
                                       std::pair(key_of("who", 1), key_of("else", 1))}) {
    const Ends ends = shake_with_keys(client, server);
    EXPECT_FALSE(ends.client.ok());
    EXPECT_FALSE(ends.server.ok());
  }
}

// A key never replaces a certificate: neither when the server has one, nor when the client has
// none.
TEST(TlsHandshake, NeverFallsBackBetweenKeyAndCertificate) {
  const auto identity = *Identity::make("host.example");
  ServerTrust trust;
  trust.key = key_of("who", 1);
  Ends ends = shake(*Handshake::of_client(trust), *Handshake::of_server(identity));
  EXPECT_EQ(ends.client.status().code(), Code::kRefused) << ends.client.status().to_string();
  EXPECT_NE(ends.client.status().message().find("does not know our key"), std::string::npos);
  ends = shake(*Handshake::of_client({}), *Handshake::of_server(key_of("who", 1)));
  EXPECT_FALSE(ends.client.ok());
  EXPECT_FALSE(ends.server.ok());
}

// A process may start with either kind, and the other kind works after it.
TEST(TlsLibrary, KeysAndCertificatesWorkInOneProcess) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(shake_with_keys(key_of("who", 1), key_of("who", 1)).client.ok());
    const auto identity = *Identity::make("host.example");
    EXPECT_TRUE(shake(*Handshake::of_client({}), *Handshake::of_server(identity)).client.ok());
  }
}

// Also in a process that has connected by a key only.
TEST(TlsLibrary, ErrorsHaveTexts) {
  ASSERT_TRUE(library(AuthMode::kKey).ok());
  EXPECT_EQ(take_openssl_error(), "unknown error");
  ERR_raise(ERR_LIB_SSL, SSL_R_NO_SHARED_CIPHER);
  EXPECT_EQ(take_openssl_error(), "no shared cipher");
  EXPECT_EQ(take_openssl_error(), "unknown error") << "the queue is empty";
}

TEST(TlsHandshake, CertificateRoundTripsThroughPemWithItsFingerprint) {
  const auto made = *Identity::make("host.example");
  const auto read = Identity::from_pem(*made->certificate_pem(), *made->key_pem());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ((*read)->fingerprint(), made->fingerprint());
  const Ends ends = shake(*Handshake::of_client({}), *Handshake::of_server(*read));
  ASSERT_TRUE(ends.client.ok()) << ends.client.status().to_string();
  EXPECT_EQ(ends.client->peer, made->fingerprint());
  EXPECT_EQ(*parse_fingerprint(to_string(made->fingerprint())), made->fingerprint());
  EXPECT_FALSE(parse_fingerprint("sha256:1234").ok());

  const auto other = *Identity::make("host.example");
  EXPECT_EQ(Identity::from_pem(*made->certificate_pem(), *other->key_pem()).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(Identity::from_pem("nothing", *other->key_pem()).status().code(),
            Code::kInvalidArgument);
}

// Sessions' keys come from a link with certificates. A recording of the link must therefore
// withstand a quantum computer, if OpenSSL supports that. A session also has a secret key beside
// its exchange.
TEST(TlsHandshake, LinkUsesPostQuantumExchangeIfAvailable) {
  const auto identity = *Identity::make("here");
  const Ends link = shake(*Handshake::of_client({}), *Handshake::of_server(identity));
  ASSERT_TRUE(link.client.ok()) << link.client.status().to_string();
  ASSERT_TRUE(link.server.ok()) << link.server.status().to_string();
  const bool knows =
      OPENSSL_version_major() > 3 || (OPENSSL_version_major() == 3 && OPENSSL_version_minor() >= 5);
  EXPECT_EQ(link.client->group, knows ? "X25519MLKEM768" : "x25519");
  EXPECT_EQ(link.server->group, link.client->group);
  const Ends session = shake_with_keys(key_of("a", 1), key_of("a", 1));
  ASSERT_TRUE(session.client.ok()) << session.client.status().to_string();
  EXPECT_EQ(session.client->group, "x25519");
}

TEST(Fingerprints, AcceptCommonFormats) {
  Fingerprint wanted;
  wanted.fill(0xab);
  std::string digits, coloned;
  for (int i = 0; i < 32; ++i) digits += "ab";
  for (int i = 0; i < 32; ++i) coloned += i == 0 ? "AB" : ":AB";
  for (const std::string& text : {digits, "sha256:" + digits, coloned}) {
    const auto digest = parse_fingerprint(text);
    ASSERT_TRUE(digest.ok()) << text;
    EXPECT_EQ(*digest, wanted);
  }
  for (const std::string& text :
       {std::string(), std::string("sha256:"), digits + "a", "x" + digits}) {
    EXPECT_FALSE(parse_fingerprint(text).ok()) << text;
  }
}

TEST(TlsHandshake, AuthorityIsTrustedOnlyForNamedHost) {
  const auto identity = *Identity::make("host.example");
  const std::string path = testing::TempDir() + "tls_authorities-" + std::to_string(getpid());
  std::ofstream(path) << *identity->certificate_pem();
  ServerTrust trust;
  trust.authorities_file = path;
  trust.host = "host.example";
  Ends ends = shake(*Handshake::of_client(trust), *Handshake::of_server(identity));
  EXPECT_TRUE(ends.client.ok()) << ends.client.status().to_string();
  trust.host = "other.example";
  ends = shake(*Handshake::of_client(trust), *Handshake::of_server(identity));
  EXPECT_EQ(ends.client.status().code(), Code::kRefused);
  EXPECT_FALSE(ends.server.ok());
  trust.host = "host.example";
  const auto stranger = *Identity::make("host.example");
  ends = shake(*Handshake::of_client(trust), *Handshake::of_server(stranger));
  EXPECT_EQ(ends.client.status().code(), Code::kRefused);
  EXPECT_NE(ends.client.status().message().find("not trusted"), std::string::npos);
  std::remove(path.c_str());
}

TEST(TlsHandshake, ReportsPeerThatDoesNotSpeakTls) {
  loopback::Pair pair = loopback::connect_pair();
  ASSERT_TRUE(send_one(*pair.second, text_bytes("grun, says an older server in plain text")).ok());
  auto client = *Handshake::of_client({});
  const Result<Channel> none = client->finish(*pair.first, soon());
  EXPECT_EQ(none.status().code(), Code::kProtocol);
  EXPECT_NE(none.status().message().find("does not speak TLS"), std::string::npos)
      << none.status().message();
}

TEST(TlsHandshake, AlertGivesReadableError) {
  loopback::Pair pair = loopback::connect_pair();
  ASSERT_TRUE(send_one(*pair.second, alert_record(Alert::kUnknownKey)).ok());
  auto client = *Handshake::of_client({});
  const Result<Channel> none = client->finish(*pair.first, soon());
  EXPECT_EQ(none.status().code(), Code::kRefused);
  EXPECT_NE(none.status().message().find("lease is over"), std::string::npos)
      << none.status().message();
}

TEST(TlsHandshake, FailsIfPeerDiesOrIsSilent) {
  loopback::Pair pair = loopback::connect_pair();
  auto waiting = *Handshake::of_client({});
  EXPECT_EQ(
      waiting->finish(*pair.first, Deadline::in(std::chrono::milliseconds(30))).status().code(),
      Code::kDeadline);
  pair = loopback::connect_pair();
  pair.second.reset();
  auto dead = *Handshake::of_client({});
  EXPECT_EQ(dead->finish(*pair.first, soon()).status().code(), Code::kPeerGone);
}

struct Secured {
  std::unique_ptr<Connection> client, server;
};

Secured secured_pair(const TlsOptions& options, const faulty::Plan* plan = nullptr) {
  Ends ends = shake_with_keys(key_of("who", 1), key_of("who", 1));
  if (plan != nullptr) ends.below_client = faulty::wrap(std::move(ends.below_client), *plan);
  return {*secure(std::move(ends.below_client), *std::move(ends.client), options),
          *secure(std::move(ends.below_server), *std::move(ends.server), options)};
}

// A record with a flipped bit is never accepted, and the opposite direction still works.
TEST(TlsConnection, AlteredRecordEndsConnectionWithClearError) {
  faulty::Plan plan;
  plan.seed = 3;
  plan.corrupt_one_in_bytes = 50'000;
  Secured pair = secured_pair({}, &plan);
  const Bytes whole(1 << 20, std::byte{9});
  auto sending = std::async(std::launch::async, [&] { return send_one(*pair.client, whole); });
  Bytes got(1 << 16);
  Status failure;
  std::size_t total = 0;
  while (failure.ok() && total < whole.size()) {
    const Result<std::size_t> more = pair.server->receive(got, 1, soon());
    if (!more.ok()) {
      failure = more.status();
      continue;
    }
    for (std::size_t i = 0; i < *more; ++i) ASSERT_EQ(got[i], std::byte{9});
    total += *more;
  }
  EXPECT_EQ(failure.code(), Code::kProtocol) << failure.to_string();
  EXPECT_NE(failure.message().find("altered on the way"), std::string::npos) << failure.message();
  EXPECT_EQ(pair.server->receive(got, 1, soon()).status().code(), Code::kProtocol) << "final";
  ASSERT_TRUE(send_one(*pair.server, ByteView(whole).first(5)).ok());
  EXPECT_TRUE(pair.client->receive(got, 5, soon()).ok());
  pair.server->shut_down();
  pair.client->shut_down();
  sending.wait();
}

// Keys wear out, so both directions renew theirs, and nothing is lost.
TEST(TlsConnection, KeyRenewalLosesNoBytes) {
  TlsOptions options;
  options.records_per_key = 3;
  Secured pair = secured_pair(options);
  for (unsigned round = 0; round < 200; ++round) {
    const Bytes words(round * 37 + 1, static_cast<std::byte>(round));
    Connection& from = round % 3 == 0 ? *pair.server : *pair.client;
    Connection& to = round % 3 == 0 ? *pair.client : *pair.server;
    ASSERT_TRUE(send_one(from, words).ok());
    Bytes got(words.size());
    ASSERT_TRUE(to.receive(got, got.size(), soon()).ok()) << round;
    ASSERT_EQ(got, words);
  }
}

// With reads_ahead off the descriptor shows whether there are bytes, which polling code relies on.
TEST(TlsConnection, DescriptorStaysReadableWithoutReadAhead) {
  auto listener = *listen("tcp://127.0.0.1:0");
  auto near = *connect("tcp://" + listener->address(), soon());
  auto far = *listener->accept(soon());
  ServerTrust trust;
  trust.key = key_of("who", 1);
  Ends ends = shake(*Handshake::of_client(trust), *Handshake::of_server(key_of("who", 1)),
                    {std::move(near), std::move(far)});
  TlsOptions options;
  options.reads_ahead = false;
  auto client = *secure(std::move(ends.below_client), *std::move(ends.client), options);
  auto server = *secure(std::move(ends.below_server), *std::move(ends.server), options);
  ASSERT_TRUE(send_one(*server, text_bytes("one")).ok());
  ASSERT_TRUE(send_one(*server, text_bytes("two")).ok());
  Bytes got(3);
  ASSERT_TRUE(client->receive(got, 3, soon()).ok());
  EXPECT_EQ(got, text_bytes("one"));
  std::byte peeked;
  EXPECT_EQ(recv(client->fd(), &peeked, 1, MSG_PEEK | MSG_DONTWAIT), 1);
  ASSERT_TRUE(client->receive(got, 3, soon()).ok());
  EXPECT_EQ(got, text_bytes("two"));
  EXPECT_EQ(recv(client->fd(), &peeked, 1, MSG_PEEK | MSG_DONTWAIT), -1);
}

// Another implementation at the other end: OpenSSL's own record layer, its tickets after the
// handshake, its padding, and its key updates with a request for ours.
TEST(TlsConnection, InteroperatesWithOpenSslRecordLayer) {
  auto listener = *listen("tcp://127.0.0.1:0");
  const auto identity = *Identity::make("host.example");
  auto foreign = std::async(std::launch::async, [&] {
    auto below = *listener->accept(soon());
    SSL_CTX* context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_num_tickets(context, 2);
    SSL_CTX_set_block_padding(context, 512);
    SSL* ssl = SSL_new(context);
    EXPECT_TRUE(identity->present(ssl).ok());
    EXPECT_EQ(SSL_set_fd(ssl, below->fd()), 1);
    EXPECT_EQ(SSL_accept(ssl), 1);
    std::string heard;
    for (int round = 0; round < 5; ++round) {
      char words[64];
      const int got = SSL_read(ssl, words, sizeof words);
      heard.append(words, static_cast<std::size_t>(std::max(got, 0)));
      EXPECT_EQ(SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED), 1);
      EXPECT_EQ(SSL_write(ssl, "answer", 6), 6);
    }
    SSL_shutdown(ssl);
    SSL_free(ssl);
    SSL_CTX_free(context);
    return heard;
  });
  auto below = *connect("tcp://" + listener->address(), soon());
  auto handshake = *Handshake::of_client({});
  Result<Channel> channel = handshake->finish(*below, soon());
  ASSERT_TRUE(channel.ok()) << channel.status().to_string();
  EXPECT_EQ(channel->peer, identity->fingerprint());
  auto connection = *secure(std::move(below), *std::move(channel));
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(send_one(*connection, text_bytes("hello")).ok());
    Bytes got(6);
    const auto received = connection->receive(got, 6, soon());
    ASSERT_TRUE(received.ok()) << received.status().to_string();
    EXPECT_EQ(got, text_bytes("answer"));
  }
  EXPECT_EQ(foreign.get(), "hellohellohellohellohello");
  Bytes got(1);
  EXPECT_EQ(connection->receive(got, 1, soon()).status().code(), Code::kPeerGone);
}

}  // namespace
}  // namespace gpurun::transport::tls
