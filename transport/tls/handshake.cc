// Handshakes: OpenSSL works on two buffers in memory and never touches the descriptor. So waits,
// deadlines and signals belong to the connection alone.
#include "transport/tls/handshake.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstring>
#include <string_view>
#include <utility>

namespace gpurun::transport::tls {
namespace {

constexpr std::size_t kPieceBytes = 4096;
constexpr std::string_view kBindingLabel = "EXPORTER-gpurun channel 1";
// The numbers of TLS_AES_128_GCM_SHA256 (RFC 8446, appendix B.4).
constexpr unsigned char kSuite[] = {0x13, 0x01};

Status broken(const char* doing) {
  return Status(Code::kInternal, std::string(doing) + ": " + take_openssl_error());
}

int accept_any(int, X509_STORE_CTX*) { return 1; }

// What a peer's alert means to the user of this end.
std::string meaning(int alert) {
  switch (alert) {
    case static_cast<int>(Alert::kHandshakeFailure):
      return "the other end refuses TLS: it has no certificate, or none of our ciphers";
    case static_cast<int>(Alert::kAccessDenied):
      return "the other end refuses this connection: its user's token was revoked, the session has "
             "attached before, or there are "
             "too many";
    case static_cast<int>(Alert::kDecryptError):
      return "the other end has another key for this ticket: the ticket is not proved";
    case static_cast<int>(Alert::kInternalError):
      return "the other end failed; its log has the reason";
    case static_cast<int>(Alert::kUnknownKey):
      return "the lease is over, or that server never granted it";
    case SSL_AD_PROTOCOL_VERSION:
      return "the other end does not speak TLS 1.3";
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_CERTIFICATE_UNKNOWN:
      return "the other end does not trust our certificate";
    default: {
      const char* name = SSL_alert_desc_string_long(alert);
      return "the other end reports: " + std::string(name == nullptr ? "?" : name) +
             " (TLS alert " + std::to_string(alert) + ")";
    }
  }
}

template <typename Array>
bool read_hex(std::string_view text, Array& into) {
  if (text.size() != 2 * into.size()) return false;
  for (std::size_t i = 0; i < into.size(); ++i) {
    const int value = OPENSSL_hexchar2int(static_cast<unsigned char>(text[2 * i])) * 16 +
                      OPENSSL_hexchar2int(static_cast<unsigned char>(text[2 * i + 1]));
    if (value < 0) return false;
    into[i] = static_cast<std::uint8_t>(value);
  }
  return true;
}

}  // namespace

Bytes alert_record(Alert alert) {
  Bytes record;
  for (const int byte : {SSL3_RT_ALERT, 3, 3, 0, 2, SSL3_AL_FATAL, static_cast<int>(alert)}) {
    record.push_back(static_cast<std::byte>(byte));
  }
  return record;
}

// A callback meant for debugging, but the only public way to the secrets
// (SSL_CTX_set_keylog_callback(3)).
void Handshake::keep_secret(const SSL* ssl, const char* line) {
  auto* self = static_cast<Handshake*>(SSL_get_app_data(ssl));
  const std::string_view text(line);
  const std::string_view label = text.substr(0, text.find(' '));
  const std::string_view value = text.substr(text.rfind(' ') + 1);
  Secret* into = label == "CLIENT_TRAFFIC_SECRET_0"   ? &self->channel_.client_traffic
                 : label == "SERVER_TRAFFIC_SECRET_0" ? &self->channel_.server_traffic
                                                      : nullptr;
  if (into != nullptr && read_hex(value, *into)) ++self->secrets_;
}

SSL_SESSION* Handshake::session_of_key() const {
  Owned<SSL_SESSION> session(SSL_SESSION_new());
  const SSL_CIPHER* suite = SSL_CIPHER_find(ssl_.get(), kSuite);
  if (session == nullptr || suite == nullptr ||
      SSL_SESSION_set1_master_key(session.get(), key_->key.data(), key_->key.size()) != 1 ||
      SSL_SESSION_set_cipher(session.get(), suite) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1) {
    return nullptr;
  }
  return session.release();
}

int Handshake::use_key(SSL* ssl, const EVP_MD*, const unsigned char** identity,
                       std::size_t* identity_bytes, SSL_SESSION** session) {
  const auto* self = static_cast<Handshake*>(SSL_get_app_data(ssl));
  *session = self->session_of_key();
  *identity = reinterpret_cast<const unsigned char*>(self->key_->identity.data());
  *identity_bytes = self->key_->identity.size();
  return *session != nullptr ? 1 : 0;
}

int Handshake::find_key(SSL* ssl, const unsigned char* identity, std::size_t identity_bytes,
                        SSL_SESSION** session) {
  const auto* self = static_cast<Handshake*>(SSL_get_app_data(ssl));
  *session = nullptr;
  const Bytes& ours = self->key_->identity;
  if (identity_bytes != ours.size() || std::memcmp(identity, ours.data(), ours.size()) != 0) {
    return 1;  // Unknown: without a certificate the handshake ends there.
  }
  *session = self->session_of_key();
  return *session != nullptr ? 1 : 0;
}

Status Handshake::open(SSL_CTX* context) {
  ssl_.reset(SSL_new(context));
  incoming_ = BIO_new(BIO_s_mem());
  outgoing_ = BIO_new(BIO_s_mem());
  if (ssl_ == nullptr || incoming_ == nullptr || outgoing_ == nullptr) {
    BIO_free(incoming_);
    BIO_free(outgoing_);
    return broken("beginning a TLS handshake");
  }
  SSL_set_bio(ssl_.get(), incoming_, outgoing_);
  SSL_set_app_data(ssl_.get(), this);
  SSL_CTX_set_keylog_callback(context, &Handshake::keep_secret);  // The same for all.
  return {};
}

Result<std::unique_ptr<Handshake>> Handshake::of_client(const ServerTrust& trust) {
  const AuthMode auth_mode = trust.key ? AuthMode::kKey : AuthMode::kCertificate;
  const Result<SSL_CTX*> ours = client_context(auth_mode);
  if (!ours.ok()) return ours.status();
  std::unique_ptr<Handshake> made(new Handshake(false, auth_mode));
  GPURUN_RETURN_IF_ERROR(made->open(*ours));
  SSL* ssl = made->ssl_.get();
  SSL_set_connect_state(ssl);
  if (trust.key) {
    made->key_ = trust.key;
    SSL_set_psk_use_session_callback(ssl, &Handshake::use_key);
    SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);  // No authority at all: no certificate passes.
    return made;
  }
  if (!trust.authorities_file.empty()) {
    GPURUN_RETURN_IF_ERROR(made->trust_authorities(trust));
  } else {
    SSL_set_verify(ssl, SSL_VERIFY_PEER, &accept_any);
  }
  return made;
}

Status Handshake::trust_authorities(const ServerTrust& trust) {
  const Result<const Library*> ours = library(AuthMode::kCertificate);
  if (!ours.ok()) return ours.status();
  const Owned<X509_STORE> store(X509_STORE_new());
  if (store == nullptr) return broken("trusting authorities");
  if (X509_STORE_load_file_ex(store.get(), trust.authorities_file.c_str(), (*ours)->context,
                              nullptr) != 1) {
    return Status(
        Code::kInvalidArgument,
        trust.authorities_file + ": no certificates of authorities (" + take_openssl_error() + ")");
  }
  SSL* ssl = ssl_.get();
  in6_addr number = {};
  const bool is_number = inet_pton(AF_INET, trust.host.c_str(), &number) == 1 ||
                         inet_pton(AF_INET6, trust.host.c_str(), &number) == 1;
  const bool named =
      is_number ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), trust.host.c_str()) == 1
                : SSL_set1_host(ssl, trust.host.c_str()) == 1 &&
                      SSL_set_tlsext_host_name(ssl, trust.host.c_str()) == 1;
  if (trust.host.empty() || !named || SSL_set1_verify_cert_store(ssl, store.get()) != 1) {
    return broken("trusting authorities");
  }
  SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);
  return {};
}

Result<std::unique_ptr<Handshake>> Handshake::of_server(std::shared_ptr<const Identity> identity) {
  const Result<SSL_CTX*> ours = server_context(AuthMode::kCertificate);
  if (!ours.ok()) return ours.status();
  std::unique_ptr<Handshake> made(new Handshake(true, AuthMode::kCertificate));
  GPURUN_RETURN_IF_ERROR(made->open(*ours));
  SSL_set_accept_state(made->ssl_.get());
  GPURUN_RETURN_IF_ERROR(identity->present(made->ssl_.get()));
  made->identity_ = std::move(identity);
  return made;
}

Result<std::unique_ptr<Handshake>> Handshake::of_server(const PreSharedKey& key) {
  const Result<SSL_CTX*> ours = server_context(AuthMode::kKey);
  if (!ours.ok()) return ours.status();
  std::unique_ptr<Handshake> made(new Handshake(true, AuthMode::kKey));
  GPURUN_RETURN_IF_ERROR(made->open(*ours));
  SSL_set_accept_state(made->ssl_.get());
  made->key_ = key;
  SSL_set_psk_find_session_callback(made->ssl_.get(), &Handshake::find_key);
  return made;
}

Handshake::~Handshake() {
  if (key_) OPENSSL_cleanse(key_->key.data(), key_->key.size());
  OPENSSL_cleanse(channel_.client_traffic.data(), channel_.client_traffic.size());
  OPENSSL_cleanse(channel_.server_traffic.data(), channel_.server_traffic.size());
}

Status Handshake::flush(Connection& over, Deadline deadline) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(outgoing_, &data);
  if (bytes <= 0) return {};
  const ByteView part = byte_view(data, static_cast<std::size_t>(bytes));
  const Status sent = over.send({&part, 1}, deadline);
  static_cast<void>(BIO_reset(outgoing_));
  answered_ = true;
  return sent;
}

Status Handshake::hear(Connection& over, Deadline deadline) {
  std::array<std::byte, kPieceBytes> piece;
  const Result<std::size_t> got = over.receive(piece, 1, deadline);
  if (!got.ok()) {
    return Status(got.status().code(), got.status().message() + " in the TLS handshake");
  }
  if (BIO_write(incoming_, piece.data(), static_cast<int>(*got)) != static_cast<int>(*got)) {
    return broken("receiving in a TLS handshake");
  }
  return {};
}

Status Handshake::failure(Connection& over) {
  const unsigned long error = ERR_peek_error();
  const long verified = SSL_get_verify_result(ssl_.get());
  const std::string where = over.description() + ": TLS: ";
  // Sends our alert, so that the other end can report the reason. The peer has a moment to take it.
  static_cast<void>(flush(over, Deadline::in(std::chrono::milliseconds(100))));
  // An end that knows only a key has no algorithms to read a certificate with.
  const bool no_key = key_ && SSL_get_state(ssl_.get()) == TLS_ST_CR_CERT;
  if (no_key || ERR_GET_LIB(error) == ERR_LIB_SSL) {
    const int reason = ERR_GET_REASON(error);
    if (!no_key && reason > SSL_AD_REASON_OFFSET && reason <= SSL_AD_REASON_OFFSET + 255) {
      ERR_clear_error();
      return Status(Code::kRefused, where + meaning(reason - SSL_AD_REASON_OFFSET));
    }
    if (no_key || reason == SSL_R_CERTIFICATE_VERIFY_FAILED) {
      ERR_clear_error();
      return Status(Code::kRefused,
                    where + (key_ ? std::string("the server does not know our key")
                                  : "the server's certificate is not trusted: " +
                                        std::string(X509_verify_cert_error_string(verified))));
    }
    if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_UNSUPPORTED_PROTOCOL) {
      ERR_clear_error();
      return Status(Code::kProtocol, where + "the other end does not speak TLS 1.3");
    }
  }
  return Status(Code::kProtocol, where + "the handshake failed: " + take_openssl_error());
}

Result<bool> Handshake::step(Connection& over, Deadline deadline) {
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_.get());
  const int why = result == 1 ? SSL_ERROR_NONE : SSL_get_error(ssl_.get(), result);
  if (why != SSL_ERROR_NONE && why != SSL_ERROR_WANT_READ) return failure(over);
  GPURUN_RETURN_IF_ERROR(flush(over, deadline));
  return why == SSL_ERROR_NONE;
}

Status Handshake::answer(Connection& over, Deadline deadline) {
  while (!answered_) {
    GPURUN_RETURN_IF_ERROR(hear(over, deadline));
    const Result<bool> done = step(over, deadline);
    if (!done.ok()) return done.status();
    if (*done) break;
  }
  return {};
}

Result<Channel> Handshake::finish(Connection& over, Deadline deadline) {
  for (;;) {
    const Result<bool> done = step(over, deadline);
    if (!done.ok()) return done.status();
    if (*done) break;
    GPURUN_RETURN_IF_ERROR(hear(over, deadline));
  }
  GPURUN_RETURN_IF_ERROR(take_results());
  return std::exchange(channel_, Channel{});
}

Status Handshake::take_results() {
  SSL* ssl = ssl_.get();
  if (SSL_version(ssl) != TLS1_3_VERSION || secrets_ != 2) {
    return Status(Code::kInternal, "OpenSSL ended a handshake without the secrets of TLS 1.3");
  }
  if (key_ && SSL_session_reused(ssl) != 1) {
    return Status(Code::kRefused, "the other end of a TLS connection did not prove its key");
  }
  if (SSL_export_keying_material(ssl, channel_.binding.data(), channel_.binding.size(),
                                 kBindingLabel.data(), kBindingLabel.size(), nullptr, 0, 0) != 1) {
    return broken("binding to a TLS channel");
  }
  if (!key_ && !channel_.is_server) {
    const X509* certificate = SSL_get0_peer_certificate(ssl);
    if (certificate == nullptr) {
      return Status(Code::kRefused, "the server has not proved any certificate");
    }
    const Result<Fingerprint> fingerprint = fingerprint_of(certificate);
    if (!fingerprint.ok()) return fingerprint.status();
    channel_.peer = *fingerprint;
  }
  const char* const group = SSL_group_to_name(ssl, static_cast<int>(SSL_get_negotiated_group(ssl)));
  channel_.group = group == nullptr ? "" : group;
  channel_.leftover.resize(BIO_ctrl_pending(incoming_));
  const auto bytes = static_cast<int>(channel_.leftover.size());
  if (bytes > 0 && BIO_read(incoming_, channel_.leftover.data(), bytes) != bytes) {
    return broken("ending a TLS handshake");
  }
  return {};
}

}  // namespace gpurun::transport::tls
