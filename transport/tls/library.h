// Our OpenSSL: one library context of our own, with the settings that a stranger's process needs.
//
// Nothing is read from a configuration file, from the environment or from a module on disk, no
// engine is loaded, and nothing is registered for the process's end. The archives are linked into
// whoever uses this, so that an OpenSSL of the program's own is another one. (The archive's
// constructor looks at the processor, and at OPENSSL_ia32cap, which can only switch instructions
// off.)
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>

#include "base/result.h"

typedef struct ssl_session_st SSL_SESSION;  // As <openssl/ssl.h> has it.

namespace gpurun::transport::tls {

// By what an end of a connection is known. For a key OpenSSL starts with the few algorithms that
// there are then (few_algorithms.h), because a program waits for that at its first call of CUDA; a
// certificate may be of any kind.
enum class KnownBy { kKey, kCertificate };

struct Library {
  OSSL_LIB_CTX* context = nullptr;
  EVP_CIPHER* aes_128_gcm = nullptr;
};

// Made at the first call, each for itself, and never destroyed: threads may use it until the
// process ends. Few processes need both. Any thread. kInternal: OpenSSL lacks what it should have.
// kResourceExhausted: memory.
Result<const Library*> library(KnownBy known_by);
// TLS 1.3 only, one cipher suite, no tickets; shared by the handshakes of that side and kind. Made
// likewise: few processes are both sides.
Result<SSL_CTX*> client_context(KnownBy known_by);
Result<SSL_CTX*> server_context(KnownBy known_by);

// Takes what OpenSSL's queue of this thread holds, as text; "unknown error" for nothing.
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
