// Handshakes of TLS 1.3 over any Connection: OpenSSL says what is to be sent, we send and receive.
//
// An end proves itself by a pre-shared key (with an ephemeral Diffie-Hellman exchange, never
// without), or the server does so by a certificate; a handshake begun with a key never falls back
// to a certificate. What comes out is a Channel, from which connection.h makes the connection.
//
// A handshake belongs to one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/deadline.h"
#include "base/result.h"
#include "transport/tls/certificate.h"
#include "transport/tls/key_schedule.h"
#include "transport/tls/library.h"
#include "transport/transport.h"

namespace gpurun::transport::tls {

// TLS's alerts (RFC 8446, section 6.2), those that somebody says by himself.
enum class Alert : std::uint8_t {
  kHandshakeFailure = 40,
  kAccessDenied = 49,
  kDecryptError = 51,
  kInternalError = 80,
  kUnknownKey = 115,  // unknown_psk_identity
};
// A whole record that ends a handshake which has not begun.
Bytes alert_record(Alert alert);

struct PreSharedKey {
  Bytes identity;  // At most 128 bytes; anybody may read it.
  Secret key{};
};

// Whom a client believes.
struct ServerTrust {
  // The server must know it; certificates do not count then.
  std::optional<PreSharedKey> key = {};
  // A certificate that these authorities (a PEM file) have signed for `host`. Empty: any
  // certificate will do, and the caller looks at Channel::peer before it says anything.
  std::string authorities_file = {};
  std::string host = {};
};

// What a handshake leaves: the secrets of both directions, and what both ends know alone.
struct Channel {
  Secret client_traffic{};
  Secret server_traffic{};
  bool is_server = false;
  KnownBy known_by = KnownBy::kKey;
  // The same at both ends of this very channel, and of no other (exporter, section 7.5): a proof
  // that covers it cannot be used on another channel.
  Secret binding{};
  std::optional<Fingerprint> peer = {};  // Of the certificate that the other end has proved.
  Bytes leftover = {};                   // Received behind the handshake.
  std::string group = {};                // Of the key exchange, as OpenSSL names it: "x25519".
};

class Handshake {
 public:
  // kInvalidArgument: no authorities in that file. kInternal, kResourceExhausted: OpenSSL.
  static Result<std::unique_ptr<Handshake>> of_client(const ServerTrust& trust);
  static Result<std::unique_ptr<Handshake>> of_server(std::shared_ptr<const Identity> identity);
  static Result<std::unique_ptr<Handshake>> of_server(const PreSharedKey& key);
  ~Handshake();
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  // Speaks until the handshake is over. The handshake is spent on failure:
  //   kDeadline, kPeerGone  as the connection says it.
  //   kRefused              one end does not trust the other; a sentence.
  //   kProtocol             the peer does not speak TLS 1.3 as we do; a sentence.
  Result<Channel> finish(Connection& over, Deadline deadline);
  // A server's first half: hears the client's first words and answers. finish() must follow.
  Status answer(Connection& over, Deadline deadline);

 private:
  Handshake(bool is_server, KnownBy known_by) {
    channel_.is_server = is_server;
    channel_.known_by = known_by;
  }

  Status open(SSL_CTX* context);
  // Once: what is to be said is said, and true returned when the handshake is over.
  Result<bool> step(Connection& over, Deadline deadline);
  Status hear(Connection& over, Deadline deadline);
  Status flush(Connection& over, Deadline deadline);
  Status failure(Connection& over);
  Status take_results();
  Status trust_authorities(const ServerTrust& trust);

  static void keep_secret(const SSL* ssl, const char* line);
  static int use_key(SSL* ssl, const EVP_MD* hash, const unsigned char** identity,
                     std::size_t* identity_bytes, SSL_SESSION** session);
  static int find_key(SSL* ssl, const unsigned char* identity, std::size_t identity_bytes,
                      SSL_SESSION** session);
  SSL_SESSION* session_of_key() const;

  Owned<SSL> ssl_;
  BIO* incoming_ = nullptr;  // ssl_ owns them.
  BIO* outgoing_ = nullptr;
  std::optional<PreSharedKey> key_;
  std::shared_ptr<const Identity> identity_;
  Channel channel_;
  bool answered_ = false;  // Something was said.
  unsigned secrets_ = 0;   // How many traffic secrets channel_ has.
};

}  // namespace gpurun::transport::tls
