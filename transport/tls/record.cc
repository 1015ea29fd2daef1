// TLS record layer: nonce, additional data, content type and padding (RFC 8446, sections 5.2 to
// 5.4).
#include "transport/tls/record.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace gpurun::transport::tls {
namespace {

Status broken() {
  return Status(Code::kInternal, "OpenSSL cannot protect a record: " + take_openssl_error());
}

}  // namespace

Result<std::unique_ptr<Protection>> Protection::create(const Secret& traffic_secret, bool to_seal,
                                                       AuthMode auth_mode) {
  Result<Aead> cipher = Aead::create(to_seal, auth_mode);
  if (!cipher.ok()) return cipher.status();
  std::unique_ptr<Protection> made(new Protection(*std::move(cipher)));
  GPURUN_RETURN_IF_ERROR(made->set_key(traffic_secret));
  return made;
}

Protection::~Protection() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

Status Protection::set_key(const Secret& traffic_secret) {
  secret_ = traffic_secret;
  sequence_ = 0;
  expand_label(secret_, "iv", {}, mutable_bytes(base_nonce_.data(), base_nonce_.size()));
  AeadKey key;
  expand_label(secret_, "key", {}, mutable_bytes(key.data(), key.size()));
  const bool set = cipher_.set_key(key);
  OPENSSL_cleanse(key.data(), key.size());
  return set ? Status() : broken();
}

Status Protection::update() { return set_key(next_traffic_secret(secret_)); }

bool Protection::begin_record(const std::byte* header) {
  AeadNonce nonce = base_nonce_;
  for (unsigned i = 0; i < 8; ++i) {
    nonce[11 - i] ^= static_cast<std::uint8_t>(sequence_ >> (8 * i));
  }
  return cipher_.begin(nonce, ByteView(header, kRecordHeaderBytes));
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
    const bool passed = cipher_.pass(bytes, at);
    at += bytes.size();
    return passed;
  };
  for (const ByteView part : parts) {
    if (!put(part)) return broken();
  }
  if (!put(bytes_of(type)) || !cipher_.seal(at)) return broken();
  ++sequence_;
  return {};
}

Result<Protection::Opened> Protection::open(ByteView record, MutableBytes first,
                                            MutableBytes rest) {
  const auto altered = [] {
    static_cast<void>(take_openssl_error());
    return Status(Code::kProtocol,
                  "a record is not as the peer sealed it: it was altered on the way, or another "
                  "party has sent it");
  };
  if (record.size() < kRecordHeaderBytes + 1 + kTagBytes) return altered();
  if (!begin_record(record.data())) return broken();
  const ByteView sealed =
      record.subspan(kRecordHeaderBytes, record.size() - kRecordHeaderBytes - kTagBytes);
  Opened opened;
  opened.in_first = std::min(sealed.size(), first.size());
  opened.in_rest = sealed.size() - opened.in_first;
  const bool good = cipher_.pass(sealed.first(opened.in_first), first.data()) &&
                    cipher_.pass(sealed.subspan(opened.in_first), rest.data()) &&
                    cipher_.check(record.data() + record.size() - kTagBytes);
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
