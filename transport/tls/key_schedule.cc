// Key schedule: HKDF (RFC 5869) and TLS 1.3's labels over it.
#include "transport/tls/key_schedule.h"

#include <array>
#include <cstring>

namespace gpurun::transport::tls {

Secret extract_early(const Secret& pre_shared_key) {
  const Secret zeros{};
  HmacSha256 hash(bytes_of(zeros));
  hash.update(bytes_of(pre_shared_key));
  return hash.finish();
}

void expand_label(const Secret& secret, std::string_view label, ByteView context,
                  MutableBytes into) {
  constexpr std::string_view kPrefix = "tls13 ";
  const std::array<std::uint8_t, 3> head = {
      static_cast<std::uint8_t>(into.size() >> 8), static_cast<std::uint8_t>(into.size()),
      static_cast<std::uint8_t>(kPrefix.size() + label.size())};
  const auto context_bytes = static_cast<std::uint8_t>(context.size());
  constexpr std::uint8_t kFirstBlock = 1;
  HmacSha256 hash(bytes_of(secret));
  hash.update(bytes_of(head));
  hash.update(byte_view(kPrefix.data(), kPrefix.size()));
  hash.update(byte_view(label.data(), label.size()));
  hash.update(bytes_of(context_bytes));
  hash.update(context);
  hash.update(bytes_of(kFirstBlock));
  const Secret block = hash.finish();
  std::memcpy(into.data(), block.data(), into.size());
}

Secret next_traffic_secret(const Secret& secret) {
  Secret next;
  expand_label(secret, "traffic upd", {}, mutable_bytes(next.data(), next.size()));
  return next;
}

Secret external_binder(const Secret& pre_shared_key, ByteView truncated_hello) {
  const Secret early = extract_early(pre_shared_key);
  const Secret nothing = sha256({});
  Secret binder_key;
  expand_label(early, "ext binder", bytes_of(nothing),
               mutable_bytes(binder_key.data(), binder_key.size()));
  Secret finished;
  expand_label(binder_key, "finished", {}, mutable_bytes(finished.data(), finished.size()));
  const Secret transcript = sha256(truncated_hello);
  HmacSha256 hash(bytes_of(finished));
  hash.update(bytes_of(transcript));
  return hash.finish();
}

}  // namespace gpurun::transport::tls
