// Handshakes of TLS 1.3 over any Connection. OpenSSL makes and reads the messages, and this code
// sends and receives them.
//
// Both ends prove a pre-shared key (always with an ephemeral Diffie-Hellman exchange), or the
// server proves itself by a certificate. A handshake that began with a key never falls back to a
// certificate. The result is a Channel, from which connection.h makes the connection.
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

// TLS's alerts (RFC 8446, section 6.2) that our own code sends.
enum class Alert : std::uint8_t {
  kHandshakeFailure = 40,
  kAccessDenied = 49,
  kDecryptError = 51,
  kInternalError = 80,
  kUnknownKey = 115,  // unknown_psk_identity
};
// A whole record that ends a handshake before it has begun.
Bytes alert_record(Alert alert);

struct PreSharedKey {
  Bytes identity;  // At most 128 bytes. Not a secret.
  Secret key{};
};

// Which server a client trusts.
struct ServerTrust {
  // The server must know this key. Then certificates do not count.
  std::optional<PreSharedKey> key = {};
  // A PEM file with the authorities of which one must have signed the server's certificate for
  // `host`. Empty: any certificate passes. The caller must then check Channel::peer before it sends
  // anything.
  std::string authorities_file = {};
  std::string host = {};
};

// The result of a handshake: the secrets of both directions, and what only the two ends know.
struct Channel {
  Secret client_traffic{};
  Secret server_traffic{};
  bool is_server = false;
  AuthMode auth_mode = AuthMode::kKey;
  // The same at both ends of this channel, and different on every other channel (exporter, section
  // 7.5). So a proof that covers it cannot be reused on another channel.
  Secret binding{};
  std::optional<Fingerprint> peer = {};  // Of the certificate that the other end proved.
  Bytes leftover = {};                   // Bytes that were received behind the handshake.
  std::string group = {};                // The key exchange's group, as OpenSSL names it: "x25519".
};

class Handshake {
 public:
  // kInvalidArgument: the file has no authorities. kInternal, kResourceExhausted: OpenSSL fails.
  static Result<std::unique_ptr<Handshake>> of_client(const ServerTrust& trust);
  static Result<std::unique_ptr<Handshake>> of_server(std::shared_ptr<const Identity> identity);
  static Result<std::unique_ptr<Handshake>> of_server(const PreSharedKey& key);
  ~Handshake();
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  // Sends and receives until the handshake is over. After a failure the handshake is unusable.
  //   kDeadline, kPeerGone  as the connection returns them.
  //   kRefused              one end does not trust the other. The message is for the user.
  //   kProtocol             the peer does not speak TLS 1.3 as we do. The message is for the user.
  Result<Channel> finish(Connection& over, Deadline deadline);
  // A server's first half: receives the client's first message and sends the answer. finish() must
  // follow.
  Status answer(Connection& over, Deadline deadline);

 private:
  Handshake(bool is_server, AuthMode auth_mode) {
    channel_.is_server = is_server;
    channel_.auth_mode = auth_mode;
  }

  Status open(SSL_CTX* context);
  // Does one step and sends its output. Returns true when the handshake is over.
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
  BIO* incoming_ = nullptr;  // ssl_ owns both.
  BIO* outgoing_ = nullptr;
  std::optional<PreSharedKey> key_;
  std::shared_ptr<const Identity> identity_;
  Channel channel_;
  bool answered_ = false;  // Something was sent.
  unsigned secrets_ = 0;   // The number of traffic secrets that channel_ has.
};

}  // namespace gpurun::transport::tls
