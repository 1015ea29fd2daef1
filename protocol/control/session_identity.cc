// SessionIdentity: a fixed layout behind a first word of our own, so that no other name is mistaken
// for one.
#include "protocol/control/session_identity.h"

#include <cstring>
#include <string_view>

#include "protocol/limits.h"

namespace gpurun::protocol {
namespace {

constexpr std::string_view kFirstWord = "gpurun session 1";

void append(Bytes& to, ByteView bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

void append_number(Bytes& to, std::uint16_t number) {
  to.push_back(static_cast<std::byte>(number >> 8));
  to.push_back(static_cast<std::byte>(number));
}

ByteView take(ByteView& from, std::size_t bytes) {
  const ByteView front = from.first(bytes);
  from = from.subspan(bytes);
  return front;
}

void take_id(ByteView& from, Id& into) {
  std::memcpy(into.data(), take(from, into.size()).data(), into.size());
}

std::uint16_t take_number(ByteView& from) {
  const ByteView two = take(from, 2);
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(two[0]) << 8 |
                                    std::to_integer<unsigned>(two[1]));
}

}  // namespace

Bytes encode_identity(const SessionIdentity& identity) {
  Bytes bytes;
  append(bytes, byte_view(kFirstWord.data(), kFirstWord.size()));
  append(bytes, bytes_of(identity.lease));
  append(bytes, bytes_of(identity.ticket));
  append(bytes, bytes_of(identity.session));
  append_number(bytes, identity.index);
  append_number(bytes, identity.count);
  return bytes;
}

std::optional<SessionIdentity> decode_identity(ByteView bytes) {
  SessionIdentity identity;
  constexpr std::size_t kBytes = kFirstWord.size() + 3 * sizeof(Id) + 4;
  if (bytes.size() != kBytes) return std::nullopt;
  if (std::memcmp(take(bytes, kFirstWord.size()).data(), kFirstWord.data(), kFirstWord.size()) !=
      0) {
    return std::nullopt;
  }
  take_id(bytes, identity.lease);
  take_id(bytes, identity.ticket);
  take_id(bytes, identity.session);
  identity.index = take_number(bytes);
  identity.count = take_number(bytes);
  if (identity.count < 2 || identity.count > limits::kConnectionsMax ||
      identity.index >= identity.count) {
    return std::nullopt;
  }
  return identity;
}

Key tls_session_key(const Key& ticket_key, const Nonce& challenge, const Id& session) {
  return link_key(bytes_of(ticket_key), Link::kTlsSession, challenge, Nonce{}, session);
}

Key attach_key_inside(const Key& tls_session_key, const Nonce& client, const Id& session) {
  return link_key(bytes_of(tls_session_key), Link::kAttach, Nonce{}, client, session);
}

}  // namespace gpurun::protocol
