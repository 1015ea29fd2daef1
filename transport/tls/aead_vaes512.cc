// Aead by Intel's library for IPsec. The functions for VAES are taken out of its archive one by
// one, because its own choice among processors would link and start all of its ciphers.
#include "transport/tls/aead_implementations.h"

#ifndef GPURUN_VAES512

namespace gpurun::transport::tls {

bool has_vaes512() noexcept { return false; }
std::unique_ptr<Aead> make_wide_aead(bool /*to_seal*/) { return nullptr; }

}  // namespace gpurun::transport::tls

#else

#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>

// glibc 2.36 writes this header for C only.
#define _Bool bool  // NOLINT(bugprone-reserved-identifier)
#include <sys/platform/x86.h>
#undef _Bool

// The library's header declares these only for older processors. The signatures are those of the
// functions of the same names without "_vaes_avx512" (intel-ipsec-mb.h, "Direct GCM API").
extern "C" {
void aes_gcm_precomp_128_vaes_avx512(gcm_key_data* key);
void aes_gcm_init_128_vaes_avx512(const gcm_key_data* key, gcm_context_data* context,
                                  const std::uint8_t* nonce, const std::uint8_t* additional,
                                  std::uint64_t additional_bytes);
void aes_gcm_enc_128_update_vaes_avx512(const gcm_key_data* key, gcm_context_data* context,
                                        std::uint8_t* to, const std::uint8_t* from,
                                        std::uint64_t bytes);
void aes_gcm_dec_128_update_vaes_avx512(const gcm_key_data* key, gcm_context_data* context,
                                        std::uint8_t* to, const std::uint8_t* from,
                                        std::uint64_t bytes);
void aes_gcm_enc_128_finalize_vaes_avx512(const gcm_key_data* key, gcm_context_data* context,
                                          std::uint8_t* tag, std::uint64_t tag_bytes);
void aes_gcm_dec_128_finalize_vaes_avx512(const gcm_key_data* key, gcm_context_data* context,
                                          std::uint8_t* tag, std::uint64_t tag_bytes);
}

namespace gpurun::transport::tls {
namespace {

const std::uint8_t* raw(const std::byte* bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes);
}
std::uint8_t* raw(std::byte* bytes) { return reinterpret_cast<std::uint8_t*>(bytes); }

class WideAead final : public Aead {
 public:
  explicit WideAead(bool to_seal) : to_seal_(to_seal) {}
  ~WideAead() override {
    OPENSSL_cleanse(&key_, sizeof key_);
    OPENSSL_cleanse(&message_, sizeof message_);
  }

  AeadBy by() const noexcept override { return AeadBy::kVaes512; }

  bool set_key(const AeadKey& key) override {
    aes_keyexp_128_enc_avx512(key.data(), key_.expanded_keys);
    aes_gcm_precomp_128_vaes_avx512(&key_);
    return true;
  }

  bool begin(const AeadNonce& nonce, ByteView additional) override {
    aes_gcm_init_128_vaes_avx512(&key_, &message_, nonce.data(), raw(additional.data()),
                                 additional.size());
    return true;
  }

  bool pass(ByteView from, std::byte* to) override {
    const auto update =
        to_seal_ ? aes_gcm_enc_128_update_vaes_avx512 : aes_gcm_dec_128_update_vaes_avx512;
    if (!from.empty()) update(&key_, &message_, raw(to), raw(from.data()), from.size());
    return true;
  }

  bool seal(std::byte* tag) override {
    aes_gcm_enc_128_finalize_vaes_avx512(&key_, &message_, raw(tag), kTagBytes);
    return true;
  }

  bool check(const std::byte* tag) override {
    std::array<std::uint8_t, kTagBytes> ours;
    aes_gcm_dec_128_finalize_vaes_avx512(&key_, &message_, ours.data(), ours.size());
    return CRYPTO_memcmp(ours.data(), tag, kTagBytes) == 0;  // In constant time.
  }

 private:
  const bool to_seal_;
  alignas(64) gcm_key_data key_{};
  alignas(64) gcm_context_data message_{};
};

}  // namespace

// As the loader has found them, and only where the system saves such registers. To ask the
// processor itself is slow within a virtual machine, and would happen at each start.
bool has_vaes512() noexcept {
  return CPU_FEATURE_ACTIVE(AVX512F) && CPU_FEATURE_ACTIVE(AVX512BW) &&
         CPU_FEATURE_ACTIVE(AVX512DQ) && CPU_FEATURE_ACTIVE(AVX512VL) && CPU_FEATURE_ACTIVE(AES) &&
         CPU_FEATURE_ACTIVE(PCLMULQDQ) && CPU_FEATURE_ACTIVE(BMI2) && CPU_FEATURE_ACTIVE(VAES) &&
         CPU_FEATURE_ACTIVE(VPCLMULQDQ);
}

std::unique_ptr<Aead> make_wide_aead(bool to_seal) { return std::make_unique<WideAead>(to_seal); }

}  // namespace gpurun::transport::tls

#endif
