// Our OpenSSL: a library context of our own, with settings that are safe in another program's
// process.
//
// It reads no configuration file, no environment variable and no module from disk. It loads no
// engine and registers nothing for the process's exit. The archives are linked into the binary that
// uses this, so that it never shares state with the program's own OpenSSL. The archive's
// constructor does read the processor's features and OPENSSL_ia32cap, which can only disable
// instructions.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>

#include "base/result.h"

typedef struct ssl_session_st SSL_SESSION;  // As <openssl/ssl.h> has it.

namespace gpurun::transport::tls {

// How an end of a connection is authenticated. For a key, OpenSSL starts without the tables that
// only certificates need, because a program's first CUDA call waits for that start.
enum class AuthMode { kKey, kCertificate };

struct Library {
  OSSL_LIB_CTX* context = nullptr;
  EVP_CIPHER* aes_128_gcm = nullptr;
};

// Each kind is made at its first call and never destroyed, because threads may use it until the
// process ends. Few processes need both kinds. Any thread. kInternal: OpenSSL lacks an algorithm.
// kResourceExhausted: no memory.
Result<const Library*> library(AuthMode auth_mode);
// TLS 1.3 only, one cipher suite, no tickets. All handshakes of one side and kind share a context.
// Each context is made at its first call, because few processes are both sides.
Result<SSL_CTX*> client_context(AuthMode auth_mode);
Result<SSL_CTX*> server_context(AuthMode auth_mode);

// Takes the oldest error from OpenSSL's queue of this thread, as text. "unknown error" when it is
// empty.
std::string take_openssl_error();

// Frees an OpenSSL object.
struct Free {
  void operator()(SSL* object) const;
  void operator()(X509* object) const;
  void operator()(EVP_PKEY* object) const;
  void operator()(EVP_CIPHER_CTX* object) const;
  void operator()(BIO* object) const;
  void operator()(X509_STORE* object) const;
  void operator()(SSL_SESSION* object) const;
};
template <typename Object>
using Owned = std::unique_ptr<Object, Free>;

}  // namespace gpurun::transport::tls
