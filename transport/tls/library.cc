// Our OpenSSL: the first call decides for the process that nothing is loaded and nothing
// registered.
#include "transport/tls/library.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace gpurun::transport::tls {
namespace {

// RFC 8446's mandatory suite, for which all processors that we know have instructions. Our own code
// for secrets (key_schedule.h) is for its SHA-256 only.
constexpr const char* kSuite = "TLS_AES_128_GCM_SHA256";
// Where both ends are ours, they use the first group.
constexpr const char* kGroups = "X25519:P-256";
// A link with certificates carries the secrets that sessions' keys come from. A recording of it
// must not be opened by a later quantum computer. OpenSSL has this group from 3.5 on.
constexpr const char* kGroupsAfterQuantum = "X25519MLKEM768:X25519:P-256";
constexpr const char* kGroup = "X25519";

Status does_not_start() {
  return Status(Code::kInternal, "OpenSSL does not start: " + take_openssl_error());
}

bool set_groups(SSL_CTX* context, AuthMode auth_mode) {
  if (auth_mode == AuthMode::kKey) return SSL_CTX_set1_groups_list(context, kGroup) == 1;
  if (SSL_CTX_set1_groups_list(context, kGroupsAfterQuantum) == 1) return true;
  ERR_clear_error();  // An older OpenSSL.
  return SSL_CTX_set1_groups_list(context, kGroups) == 1;
}

Result<SSL_CTX*> make_context(const SSL_METHOD* method, AuthMode auth_mode) {
  const Result<const Library*> ours = library(auth_mode);
  if (!ours.ok()) return ours.status();
  SSL_CTX* made = SSL_CTX_new_ex((*ours)->context, nullptr, method);
  if (made == nullptr) return does_not_start();
  SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
  // Without the extra records for middleboxes, which are not on our port's path.
  SSL_CTX_clear_options(made, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_options(made, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  if (SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(made, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(made, kSuite) != 1 || !set_groups(made, auth_mode) ||
      // A ticket would be a record after the handshake, when we hold the keys and not OpenSSL.
      SSL_CTX_set_num_tickets(made, 0) != 1) {
    SSL_CTX_free(made);
    return does_not_start();
  }
  return made;
}

// The first start in a process decides. What it omits is not loaded later by itself.
constexpr std::uint64_t kNothing = OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT;
// libcrypto's error texts, and tables from before there were providers. Connections by key need
// neither, and they cost a third of the time of the start.
constexpr std::uint64_t kNoTables = OPENSSL_INIT_NO_LOAD_CRYPTO_STRINGS |
                                    OPENSSL_INIT_NO_ADD_ALL_CIPHERS |
                                    OPENSSL_INIT_NO_ADD_ALL_DIGESTS;

Result<Library> make_library(AuthMode auth_mode) {
  const std::uint64_t left_away = kNothing | (auth_mode == AuthMode::kKey ? kNoTables : 0);
  Library made;
  if (OPENSSL_init_crypto(left_away, nullptr) != 1 ||
      OPENSSL_init_ssl(left_away | OPENSSL_INIT_LOAD_SSL_STRINGS, nullptr) != 1 ||
      (made.context = OSSL_LIB_CTX_new()) == nullptr ||
      OSSL_PROVIDER_load(made.context, "default") == nullptr ||
      (made.aes_128_gcm = EVP_CIPHER_fetch(made.context, "AES-128-GCM", nullptr)) == nullptr) {
    return does_not_start();
  }
  return made;
}

template <typename Made, Made (*make)(AuthMode)>
const Made& once(AuthMode auth_mode) {
  if (auth_mode == AuthMode::kKey) {
    static const auto* const by_key = new Made(make(AuthMode::kKey));
    return *by_key;
  }
  static const auto* const by_certificate = new Made(make(AuthMode::kCertificate));
  return *by_certificate;
}

Result<SSL_CTX*> make_client(AuthMode auth_mode) {
  return make_context(TLS_client_method(), auth_mode);
}
Result<SSL_CTX*> make_server(AuthMode auth_mode) {
  return make_context(TLS_server_method(), auth_mode);
}

}  // namespace

Result<const Library*> library(AuthMode auth_mode) {
  const auto& made = once<Result<Library>, &make_library>(auth_mode);
  if (!made.ok()) return made.status();
  return &*made;
}

Result<SSL_CTX*> client_context(AuthMode auth_mode) {
  return once<Result<SSL_CTX*>, &make_client>(auth_mode);
}

Result<SSL_CTX*> server_context(AuthMode auth_mode) {
  return once<Result<SSL_CTX*>, &make_server>(auth_mode);
}

std::string take_openssl_error() {
  const unsigned long first = ERR_get_error();
  ERR_clear_error();
  if (first == 0) return "unknown error";
  if (const char* reason = ERR_reason_error_string(first); reason != nullptr) return reason;
  char number[64];
  ERR_error_string_n(first, number, sizeof number);
  return number;
}

void Free::operator()(SSL* object) const { SSL_free(object); }
void Free::operator()(X509* object) const { X509_free(object); }
void Free::operator()(EVP_PKEY* object) const { EVP_PKEY_free(object); }
void Free::operator()(EVP_CIPHER_CTX* object) const { EVP_CIPHER_CTX_free(object); }
void Free::operator()(BIO* object) const { BIO_free_all(object); }
void Free::operator()(X509_STORE* object) const { X509_STORE_free(object); }
void Free::operator()(SSL_SESSION* object) const { SSL_SESSION_free(object); }

}  // namespace gpurun::transport::tls
