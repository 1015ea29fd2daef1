// Aead: OpenSSL's cipher objects. One object keeps its expanded key from message to message.
#include "transport/tls/aead.h"

#include <openssl/evp.h>

#include <algorithm>

namespace gpurun::transport::tls {
namespace {

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

}  // namespace

Result<Aead> Aead::create(bool to_seal, AuthMode auth_mode) {
  const Result<const Library*> ours = library(auth_mode);
  if (!ours.ok()) return ours.status();
  Owned<EVP_CIPHER_CTX> context(EVP_CIPHER_CTX_new());
  if (context == nullptr || EVP_CipherInit_ex2(context.get(), (*ours)->aes_128_gcm, nullptr,
                                               nullptr, to_seal ? 1 : 0, nullptr) != 1) {
    return Status(Code::kInternal, "OpenSSL has no AES-128-GCM: " + take_openssl_error());
  }
  return Aead(std::move(context), to_seal);
}

bool Aead::set_key(const AeadKey& key) {
  return EVP_CipherInit_ex2(context_.get(), nullptr, key.data(), nullptr, to_seal_, nullptr) == 1;
}

bool Aead::begin(const AeadNonce& nonce, ByteView additional) {
  int count = 0;
  return EVP_CipherInit_ex2(context_.get(), nullptr, nullptr, nonce.data(), to_seal_, nullptr) ==
             1 &&
         (additional.empty() ||
          EVP_CipherUpdate(context_.get(), nullptr, &count, raw(additional.data()),
                           static_cast<int>(additional.size())) == 1);
}

bool Aead::pass(ByteView from, std::byte* to) {
  int count = 0;
  return from.empty() || EVP_CipherUpdate(context_.get(), raw(to), &count, raw(from.data()),
                                          static_cast<int>(from.size())) == 1;
}

bool Aead::seal(std::byte* tag) {
  int count = 0;
  return EVP_CipherFinal_ex(context_.get(), raw(tag), &count) == 1 &&
         EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag) == 1;
}

bool Aead::check(const std::byte* tag) {
  std::array<std::byte, kTagBytes> expected;
  std::copy_n(tag, kTagBytes, expected.begin());
  int count = 0;
  return EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected.data()) ==
             1 &&
         EVP_CipherFinal_ex(context_.get(), raw(expected.data()), &count) == 1;
}

}  // namespace gpurun::transport::tls
