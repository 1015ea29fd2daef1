// Certificates: X.509 by OpenSSL, from and to PEM.
#include "transport/tls/certificate.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/hex.h"

namespace gpurun::transport::tls {
namespace {

constexpr std::string_view kScheme = "sha256:";
// "No well-defined expiration date" (RFC 5280, section 4.1.2.5). Trust in the key ends instead.
constexpr const char* kNeverEnds = "99991231235959Z";

Status broken(const char* doing) {
  return Status(Code::kInternal, std::string(doing) + ": " + take_openssl_error());
}

// None of our files has a pass phrase, so OpenSSL must not ask for one.
int no_pass_phrase(char*, int, int, void*) { return -1; }

bool add_name(X509* certificate, const std::string& host) {
  X509_NAME* name = X509_get_subject_name(certificate);
  const auto* text = reinterpret_cast<const unsigned char*>(host.c_str());
  if (X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0) != 1 ||
      X509_set_issuer_name(certificate, name) != 1) {
    return false;
  }
  X509_EXTENSION* names =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, ("DNS:" + host).c_str());
  const bool added = names != nullptr && X509_add_ext(certificate, names, -1) == 1;
  X509_EXTENSION_free(names);
  return added;
}

// Replaces what a common name may not hold.
std::string usable_host(const std::string& host) {
  std::string usable;
  for (const char letter : host.substr(0, 63)) {
    const bool known = (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                       (letter >= 'A' && letter <= 'Z') || letter == '-' || letter == '.';
    usable += known ? letter : '-';
  }
  return usable.empty() ? "gpurund" : usable;
}

Result<std::string> text_of(BIO* memory) {
  char* data = nullptr;
  const long bytes = BIO_get_mem_data(memory, &data);
  if (bytes <= 0) return broken("writing PEM");
  return std::string(data, static_cast<std::size_t>(bytes));
}

Owned<BIO> over(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

}  // namespace

std::string to_string(const Fingerprint& fingerprint) {
  return std::string(kScheme) + hex_of(bytes_of(fingerprint));
}

Result<Fingerprint> parse_fingerprint(const std::string& text) {
  const auto digit = [](char letter) {
    if (letter >= '0' && letter <= '9') return letter - '0';
    if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
    if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
    return -1;
  };
  Fingerprint fingerprint{};
  std::size_t digits = 0;
  bool good = true;
  for (std::size_t i = text.compare(0, kScheme.size(), kScheme) == 0 ? kScheme.size() : 0;
       good && i < text.size(); ++i) {
    if (text[i] == ':') continue;
    const int value = digit(text[i]);
    good = value >= 0 && digits < 2 * fingerprint.size();
    if (good)
      fingerprint[digits / 2] |= static_cast<std::uint8_t>(digits % 2 == 0 ? value << 4 : value);
    ++digits;
  }
  if (good && digits == 2 * fingerprint.size()) return fingerprint;
  return Status(Code::kInvalidArgument,
                "'" + text.substr(0, 100) +
                    "' is no fingerprint: \"sha256:\" and 64 hexadecimal digits, as gpurund "
                    "--fingerprint prints them");
}

Result<Fingerprint> fingerprint_of(const X509* certificate) {
  unsigned char* der = nullptr;
  const int bytes = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &der);
  if (bytes <= 0) return broken("reading a public key");
  const Fingerprint fingerprint = sha256(byte_view(der, static_cast<std::size_t>(bytes)));
  OPENSSL_free(der);
  return fingerprint;
}

Identity::Identity(Owned<X509> certificate, Owned<EVP_PKEY> key, std::vector<Owned<X509>> chain,
                   const Fingerprint& fingerprint)
    : certificate_(std::move(certificate)),
      key_(std::move(key)),
      chain_(std::move(chain)),
      fingerprint_(fingerprint) {}

Result<std::shared_ptr<const Identity>> Identity::make(const std::string& host) {
  const Result<const Library*> ours = library(AuthMode::kCertificate);
  if (!ours.ok()) return ours.status();
  Owned<EVP_PKEY> key(EVP_PKEY_Q_keygen((*ours)->context, nullptr, "EC", "P-256"));
  Owned<X509> certificate(X509_new_ex((*ours)->context, nullptr));
  std::array<unsigned char, 16> serial{};
  if (key == nullptr || certificate == nullptr ||
      RAND_bytes_ex((*ours)->context, serial.data(), serial.size(), 0) != 1) {
    return broken("making a key");
  }
  serial[0] = static_cast<unsigned char>((serial[0] & 0x7f) | 0x40);  // Positive, and always of
                                                                      // full length.
  BIGNUM* number = BN_bin2bn(serial.data(), serial.size(), nullptr);
  const bool numbered =
      number != nullptr &&
      BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate.get())) != nullptr;
  BN_free(number);
  constexpr int kVersion3 = 2;
  constexpr long kYesterday = -24L * 3600;  // Clocks differ.
  if (!numbered || X509_set_version(certificate.get(), kVersion3) != 1 ||
      X509_gmtime_adj(X509_getm_notBefore(certificate.get()), kYesterday) == nullptr ||
      ASN1_TIME_set_string_X509(X509_getm_notAfter(certificate.get()), kNeverEnds) != 1 ||
      X509_set_pubkey(certificate.get(), key.get()) != 1 ||
      !add_name(certificate.get(), usable_host(host)) ||
      X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0) {
    return broken("making a certificate");
  }
  const Result<Fingerprint> fingerprint = fingerprint_of(certificate.get());
  if (!fingerprint.ok()) return fingerprint.status();
  return std::shared_ptr<const Identity>(
      new Identity(std::move(certificate), std::move(key), {}, *fingerprint));
}

Result<std::shared_ptr<const Identity>> Identity::from_pem(const std::string& certificates,
                                                           const std::string& key_text) {
  const auto wrong = [](const char* what) {
    static_cast<void>(take_openssl_error());
    return Status(Code::kInvalidArgument, what);
  };
  const Result<const Library*> ours = library(AuthMode::kCertificate);
  if (!ours.ok()) return ours.status();
  const Owned<BIO> certificate_file = over(certificates);
  const Owned<BIO> key_file = over(key_text);
  if (certificate_file == nullptr || key_file == nullptr) return broken("reading PEM");
  const auto read_one = [&]() -> X509* {
    X509* into = X509_new_ex((*ours)->context, nullptr);
    if (into != nullptr &&
        PEM_read_bio_X509(certificate_file.get(), &into, no_pass_phrase, nullptr) == nullptr) {
      X509_free(into);
      return nullptr;
    }
    return into;
  };
  Owned<X509> certificate(read_one());
  if (certificate == nullptr) return wrong("there is no certificate in PEM form");
  std::vector<Owned<X509>> chain;
  while (X509* next = read_one()) chain.emplace_back(next);
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey_ex(key_file.get(), nullptr, no_pass_phrase, nullptr,
                                                 (*ours)->context, nullptr));
  if (key == nullptr) return wrong("there is no private key in PEM form without a pass phrase");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return wrong("the private key is not the certificate's");
  }
  static_cast<void>(take_openssl_error());
  const Result<Fingerprint> fingerprint = fingerprint_of(certificate.get());
  if (!fingerprint.ok()) return fingerprint.status();
  return std::shared_ptr<const Identity>(
      new Identity(std::move(certificate), std::move(key), std::move(chain), *fingerprint));
}

Result<std::string> Identity::certificate_pem() const {
  const Owned<BIO> memory(BIO_new(BIO_s_mem()));
  if (memory == nullptr || PEM_write_bio_X509(memory.get(), certificate_.get()) != 1) {
    return broken("writing PEM");
  }
  return text_of(memory.get());
}

Result<std::string> Identity::key_pem() const {
  const Owned<BIO> memory(BIO_new(BIO_s_mem()));
  if (memory == nullptr || PEM_write_bio_PrivateKey(memory.get(), key_.get(), nullptr, nullptr, 0,
                                                    nullptr, nullptr) != 1) {
    return broken("writing PEM");
  }
  return text_of(memory.get());
}

Status Identity::present(SSL* ssl) const {
  if (SSL_use_certificate(ssl, certificate_.get()) != 1 ||
      SSL_use_PrivateKey(ssl, key_.get()) != 1) {
    return broken("presenting a certificate");
  }
  for (const Owned<X509>& one : chain_) {
    if (SSL_add1_chain_cert(ssl, one.get()) != 1) return broken("presenting a certificate");
  }
  return {};
}

}  // namespace gpurun::transport::tls
