// Certificates: who a server is. Made by itself, or read from an operator's files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "transport/tls/library.h"

namespace gpurun::transport::tls {

// SHA-256 of a certificate's public key (SubjectPublicKeyInfo, DER): it stays the same when a
// certificate is renewed for the same key.
using Fingerprint = Sha256Digest;

// "sha256:" and 64 hexadecimal digits; and back, also as others print them: in capitals, without
// the "sha256:", with colons. kInvalidArgument: it is none.
std::string to_string(const Fingerprint& fingerprint);
Result<Fingerprint> parse_fingerprint(const std::string& text);

// A certificate (with what leads to its authority, if anything) and its private key.
// Immutable: any thread.
class Identity {
 public:
  // A new key (ECDSA P-256) and a certificate that it signs itself, for `host`, without an end.
  static Result<std::shared_ptr<const Identity>> make(const std::string& host);
  // kInvalidArgument: no certificate, no key, or they do not belong together.
  static Result<std::shared_ptr<const Identity>> from_pem(const std::string& certificates,
                                                          const std::string& key);
  const Fingerprint& fingerprint() const { return fingerprint_; }
  // kInternal: OpenSSL does not work.
  Result<std::string> certificate_pem() const;
  Result<std::string> key_pem() const;  // A secret.

  // For handshakes: makes `ssl` present it.
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
