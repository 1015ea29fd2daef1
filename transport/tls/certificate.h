// Certificates: the identity of a server, made by itself or read from an operator's files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "transport/tls/library.h"

namespace gpurun::transport::tls {

// SHA-256 of a certificate's public key (SubjectPublicKeyInfo, DER). It stays the same when a
// certificate is renewed for the same key.
using Fingerprint = Sha256Digest;

// Formats "sha256:" and 64 hexadecimal digits. parse_fingerprint() also accepts what other tools
// print: capitals, no "sha256:", colons. kInvalidArgument: not a fingerprint.
std::string to_string(const Fingerprint& fingerprint);
Result<Fingerprint> parse_fingerprint(const std::string& text);

// A certificate, its chain to its authority if there is one, and its private key. Immutable. Any
// thread.
class Identity {
 public:
  // Makes a new key (ECDSA P-256) and a self-signed certificate for `host` that never expires.
  static Result<std::shared_ptr<const Identity>> make(const std::string& host);
  // kInvalidArgument: no certificate, no key, or they do not belong together.
  static Result<std::shared_ptr<const Identity>> from_pem(const std::string& certificates,
                                                          const std::string& key);
  const Fingerprint& fingerprint() const { return fingerprint_; }
  // kInternal: OpenSSL does not work.
  Result<std::string> certificate_pem() const;
  Result<std::string> key_pem() const;  // A secret.

  // Makes `ssl` present this certificate in its handshake.
  Status present(SSL* ssl) const;

 private:
  Identity(Owned<X509> certificate, Owned<EVP_PKEY> key, std::vector<Owned<X509>> chain,
           const Fingerprint& fingerprint);

  const Owned<X509> certificate_;
  const Owned<EVP_PKEY> key_;
  const std::vector<Owned<X509>> chain_;
  const Fingerprint fingerprint_;
};

Result<Fingerprint> fingerprint_of(const X509* certificate);

}  // namespace gpurun::transport::tls
