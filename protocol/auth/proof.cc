// Key derivation: one HMAC for each key, over a label of its own, so that no key doubles as
// another.
#include "protocol/auth/proof.h"

#include <errno.h>

#include <string_view>

namespace gpurun::protocol {
namespace {

// The label ends in NUL, so that no label is the beginning of another.
HmacSha256 labelled(ByteView key, std::string_view label) {
  HmacSha256 hash(key);
  hash.update(byte_view(label.data(), label.size()));
  hash.update(byte_view("", 1));
  return hash;
}

}  // namespace

Key link_key(ByteView secret, Link link, const Nonce& server, const Nonce& client, const Id& id) {
  HmacSha256 hash = labelled(secret, "gpurun link 1");
  hash.update(bytes_of(link));
  hash.update(bytes_of(server));
  hash.update(bytes_of(client));
  hash.update(bytes_of(id));
  return hash.finish();
}

Key lease_key(const Key& control_link, const Id& lease) {
  HmacSha256 hash = labelled(bytes_of(control_link), "gpurun lease 1");
  hash.update(bytes_of(lease));
  return hash.finish();
}

Key ticket_key(const Key& lease, const Id& ticket) {
  HmacSha256 hash = labelled(bytes_of(lease), "gpurun ticket 1");
  hash.update(bytes_of(ticket));
  return hash.finish();
}

Tag frame_tag(const Key& key, Sender sender, std::uint64_t counter, ByteView payload) {
  HmacSha256 hash = labelled(bytes_of(key), "gpurun frame 1");
  hash.update(bytes_of(sender));
  std::array<std::uint8_t, 8> little;
  for (unsigned i = 0; i < 8; ++i) little[i] = static_cast<std::uint8_t>(counter >> (8 * i));
  hash.update(bytes_of(little));
  hash.update(payload);
  return hash.finish();
}

}  // namespace gpurun::protocol
