// Aead: the implementation by OpenSSL, and the choice between the two.
#include "transport/tls/aead.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "transport/tls/aead_implementations.h"

namespace gpurun::transport::tls {
namespace {

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

class OpensslAead final : public Aead {
 public:
  OpensslAead(Owned<EVP_CIPHER_CTX> context, bool to_seal)
      : context_(std::move(context)), to_seal_(to_seal ? 1 : 0) {}

  AeadBy by() const noexcept override { return AeadBy::kOpenssl; }

  bool set_key(const AeadKey& key) override {
    return EVP_CipherInit_ex2(context_.get(), nullptr, key.data(), nullptr, to_seal_, nullptr) == 1;
  }

  bool begin(const AeadNonce& nonce, ByteView additional) override {
    int count = 0;
    return EVP_CipherInit_ex2(context_.get(), nullptr, nullptr, nonce.data(), to_seal_, nullptr) ==
               1 &&
           (additional.empty() ||
            EVP_CipherUpdate(context_.get(), nullptr, &count, raw(additional.data()),
                             static_cast<int>(additional.size())) == 1);
  }

  bool pass(ByteView from, std::byte* to) override {
    int count = 0;
    return from.empty() || EVP_CipherUpdate(context_.get(), raw(to), &count, raw(from.data()),
                                            static_cast<int>(from.size())) == 1;
  }

  bool seal(std::byte* tag) override {
    int count = 0;
    return EVP_CipherFinal_ex(context_.get(), raw(tag), &count) == 1 &&
           EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag) == 1;
  }

  bool check(const std::byte* tag) override {
    std::array<unsigned char, kTagBytes> expected;
    std::copy_n(raw(tag), kTagBytes, expected.begin());
    int count = 0;
    return EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected.data()) ==
               1 &&
           EVP_CipherFinal_ex(context_.get(), expected.data(), &count) == 1;
  }

 private:
  const Owned<EVP_CIPHER_CTX> context_;
  const int to_seal_;
};

}  // namespace

Result<std::unique_ptr<Aead>> make_openssl_aead(bool to_seal, AuthMode auth_mode) {
  const Result<const Library*> ours = library(auth_mode);
  if (!ours.ok()) return ours.status();
  Owned<EVP_CIPHER_CTX> context(EVP_CIPHER_CTX_new());
  if (context == nullptr || EVP_CipherInit_ex2(context.get(), (*ours)->aes_128_gcm, nullptr,
                                               nullptr, to_seal ? 1 : 0, nullptr) != 1) {
    return Status(Code::kInternal, "OpenSSL has no AES-128-GCM: " + take_openssl_error());
  }
  return std::unique_ptr<Aead>(new OpensslAead(std::move(context), to_seal));
}

Result<std::unique_ptr<Aead>> Aead::create(bool to_seal, AuthMode auth_mode, AeadBy by) {
  if (by == AeadBy::kOpenssl) return make_openssl_aead(to_seal, auth_mode);
  std::unique_ptr<Aead> wide = has_vaes512() ? make_wide_aead(to_seal) : nullptr;
  if (wide == nullptr) return Status(Code::kInternal, "no registers of 512 bits for AES");
  return wide;
}

}  // namespace gpurun::transport::tls
