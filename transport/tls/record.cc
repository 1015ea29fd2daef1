// Nonce, additional data, content type and padding as RFC 8446, sections 5.2 to 5.4, says.
#include "transport/tls/record.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace gpurun::transport::tls {
namespace {

const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}
unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }

Status broken() {
  return Status(Code::kInternal, "OpenSSL cannot protect a record: " + take_openssl_error());
}

}  // namespace

Result<std::unique_ptr<Protection>> Protection::create(const Secret& traffic_secret, bool to_seal,
                                                       KnownBy known_by) {
  const Result<const Library*> ours = library(known_by);
  if (!ours.ok()) return ours.status();
  Owned<EVP_CIPHER_CTX> context(EVP_CIPHER_CTX_new());
  if (context == nullptr || EVP_CipherInit_ex2(context.get(), (*ours)->aes_128_gcm, nullptr,
                                               nullptr, to_seal ? 1 : 0, nullptr) != 1) {
    return broken();
  }
  std::unique_ptr<Protection> made(new Protection(std::move(context), to_seal));
  GPURUN_RETURN_IF_ERROR(made->set_key(traffic_secret));
  return made;
}

Protection::~Protection() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

Status Protection::set_key(const Secret& traffic_secret) {
  secret_ = traffic_secret;
  sequence_ = 0;
  std::array<std::uint8_t, 16> key;
  expand_label(secret_, "key", {}, mutable_bytes(key.data(), key.size()));
  expand_label(secret_, "iv", {}, mutable_bytes(base_nonce_.data(), base_nonce_.size()));
  const int set =
      EVP_CipherInit_ex2(context_.get(), nullptr, key.data(), nullptr, to_seal_ ? 1 : 0, nullptr);
  OPENSSL_cleanse(key.data(), key.size());
  return set == 1 ? Status() : broken();
}

Status Protection::update() { return set_key(next_traffic_secret(secret_)); }

bool Protection::begin_record(const std::byte* header) {
  std::array<std::uint8_t, 12> nonce = base_nonce_;
  for (unsigned i = 0; i < 8; ++i) {
    nonce[11 - i] ^= static_cast<std::uint8_t>(sequence_ >> (8 * i));
  }
  int count = 0;
  return EVP_CipherInit_ex2(context_.get(), nullptr, nullptr, nonce.data(), to_seal_ ? 1 : 0,
                            nullptr) == 1 &&
         EVP_CipherUpdate(context_.get(), nullptr, &count, raw(header), kRecordHeaderBytes) == 1;
}

Status Protection::seal(Content type, std::span<const ByteView> parts, std::byte* into) {
  std::size_t plain = 0;
  for (const ByteView part : parts) plain += part.size();
  const std::size_t protected_bytes = plain + 1 + kTagBytes;
  const std::array<std::uint8_t, kRecordHeaderBytes> header = {
      static_cast<std::uint8_t>(Content::kApplicationData), 3, 3,
      static_cast<std::uint8_t>(protected_bytes >> 8), static_cast<std::uint8_t>(protected_bytes)};
  std::memcpy(into, header.data(), header.size());
  if (!begin_record(into)) return broken();
  std::byte* at = into + kRecordHeaderBytes;
  const auto put = [&](ByteView bytes) {
    int count = 0;
    if (EVP_CipherUpdate(context_.get(), raw(at), &count, raw(bytes.data()),
                         static_cast<int>(bytes.size())) != 1) {
      return false;
    }
    at += count;
    return true;
  };
  for (const ByteView part : parts) {
    if (!part.empty() && !put(part)) return broken();
  }
  int count = 0;
  if (!put(bytes_of(type)) || EVP_CipherFinal_ex(context_.get(), raw(at), &count) != 1 ||
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, at) != 1) {
    return broken();
  }
  ++sequence_;
  return {};
}

Result<Protection::Opened> Protection::open(ByteView record, MutableBytes first,
                                            MutableBytes rest) {
  const auto altered = [] {
    static_cast<void>(take_openssl_error());
    return Status(Code::kProtocol,
                  "a record is not as the peer sealed it: it was altered on the way, or somebody "
                  "else has sent it");
  };
  if (record.size() < kRecordHeaderBytes + 1 + kTagBytes) return altered();
  if (!begin_record(record.data())) return broken();
  const ByteView sealed =
      record.subspan(kRecordHeaderBytes, record.size() - kRecordHeaderBytes - kTagBytes);
  Opened opened;
  opened.in_first = std::min(sealed.size(), first.size());
  opened.in_rest = sealed.size() - opened.in_first;
  const auto take = [&](ByteView from, std::byte* to) {
    int count = 0;
    return from.empty() || EVP_CipherUpdate(context_.get(), raw(to), &count, raw(from.data()),
                                            static_cast<int>(from.size())) == 1;
  };
  std::array<std::byte, kTagBytes> tag;
  std::memcpy(tag.data(), record.data() + record.size() - kTagBytes, kTagBytes);
  int count = 0;
  const bool good =
      take(sealed.first(opened.in_first), first.data()) &&
      take(sealed.subspan(opened.in_first), rest.data()) &&
      EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()) == 1 &&
      EVP_CipherFinal_ex(context_.get(), raw(tag.data()), &count) == 1;
  if (!good) {
    std::fill_n(first.begin(), opened.in_first, std::byte{0});
    std::fill_n(rest.begin(), opened.in_rest, std::byte{0});
    return altered();
  }
  ++sequence_;
  // The type is the last byte that is not padding.
  for (;;) {
    if (opened.in_rest == 0 && opened.in_first == 0) return altered();
    const std::byte last = opened.in_rest > 0 ? rest[--opened.in_rest] : first[--opened.in_first];
    if (last == std::byte{0}) continue;
    opened.type = static_cast<Content>(last);
    return opened;
  }
}

}  // namespace gpurun::transport::tls
