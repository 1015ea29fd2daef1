// The first call to OpenSSL decides for the process that nothing is loaded and nothing registered.
#include "transport/tls/library.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace gpurun::transport::tls {
namespace {

// RFC 8446's mandatory suite: what all processors that we know have instructions for. Everything
// that we do with secrets beside OpenSSL (key_schedule.h) is SHA-256's.
constexpr const char* kSuite = "TLS_AES_128_GCM_SHA256";
constexpr const char* kGroups = "X25519:P-256";

Status does_not_start() {
  return Status(Code::kInternal, "OpenSSL does not start: " + take_openssl_error());
}

Result<SSL_CTX*> make_context(const SSL_METHOD* method) {
  const Result<const Library*> ours = library();
  if (!ours.ok()) return ours.status();
  SSL_CTX* made = SSL_CTX_new_ex((*ours)->context, nullptr, method);
  if (made == nullptr) return does_not_start();
  SSL_CTX_set_session_cache_mode(made, SSL_SESS_CACHE_OFF);
  // Without the extra records for middleboxes, which have no business on our port.
  SSL_CTX_clear_options(made, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_options(made, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  if (SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(made, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(made, kSuite) != 1 || SSL_CTX_set1_groups_list(made, kGroups) != 1 ||
      // A ticket would be a record after the handshake, whose keys are ours by then.
      SSL_CTX_set_num_tickets(made, 0) != 1) {
    SSL_CTX_free(made);
    return does_not_start();
  }
  return made;
}

Result<Library> make_library() {
  constexpr std::uint64_t kNothing = OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT;
  Library made;
  if (OPENSSL_init_crypto(kNothing, nullptr) != 1 || OPENSSL_init_ssl(kNothing, nullptr) != 1 ||
      (made.context = OSSL_LIB_CTX_new()) == nullptr ||
      OSSL_PROVIDER_load(made.context, "default") == nullptr ||
      (made.aes_128_gcm = EVP_CIPHER_fetch(made.context, "AES-128-GCM", nullptr)) == nullptr) {
    return does_not_start();
  }
  return made;
}

}  // namespace

Result<const Library*> library() {
  static const Result<Library>* const made = new Result<Library>(make_library());
  if (!made->ok()) return made->status();
  return &**made;
}

Result<SSL_CTX*> client_context() {
  static const auto* const made = new Result<SSL_CTX*>(make_context(TLS_client_method()));
  return *made;
}

Result<SSL_CTX*> server_context() {
  static const auto* const made = new Result<SSL_CTX*>(make_context(TLS_server_method()));
  return *made;
}

std::string take_openssl_error() {
  const unsigned long first = ERR_get_error();
  ERR_clear_error();
  const char* reason = first == 0 ? nullptr : ERR_reason_error_string(first);
  return reason == nullptr ? "unknown error" : reason;
}

void Free::operator()(SSL* object) const { SSL_free(object); }
void Free::operator()(X509* object) const { X509_free(object); }
void Free::operator()(EVP_PKEY* object) const { EVP_PKEY_free(object); }
void Free::operator()(EVP_CIPHER_CTX* object) const { EVP_CIPHER_CTX_free(object); }
void Free::operator()(BIO* object) const { BIO_free_all(object); }
void Free::operator()(X509_STORE* object) const { X509_STORE_free(object); }
void Free::operator()(SSL_SESSION* object) const { SSL_SESSION_free(object); }

}  // namespace gpurun::transport::tls
