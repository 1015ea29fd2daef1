// Ticket check: peeks at a ClientHello or at a control frame.
#include "server/daemon/leases/ticket_check.h"

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <optional>
#include <variant>

#include "protocol/control/control.h"
#include "protocol/control/session_identity.h"
#include "protocol/limits.h"
#include "transport/tls/client_hello.h"

namespace gpurun::server {
namespace {

namespace tls = transport::tls;

// The control frame at the start of `bytes`. Nothing: not a control frame, or not whole yet.
std::optional<protocol::ControlFrame> whole_frame(ByteView bytes) {
  if (bytes.size() < protocol::kControlHeaderBytes) return std::nullopt;
  const auto header = protocol::parse_control_header(bytes.first(protocol::kControlHeaderBytes),
                                                     limits::kHelloBytesMax);
  bytes = bytes.subspan(protocol::kControlHeaderBytes);
  protocol::Tag tag;
  if (!header.ok() || header->tag_bytes != tag.size() ||
      bytes.size() < header->payload_bytes + tag.size()) {
    return std::nullopt;
  }
  const ByteView payload = bytes.first(header->payload_bytes);
  const ByteView rest = bytes.subspan(header->payload_bytes, tag.size());
  std::memcpy(tag.data(), rest.data(), tag.size());
  return protocol::ControlFrame{Bytes(payload.begin(), payload.end()), tag};
}

}  // namespace

bool shows_ticket(const LeaseBook& book, const transport::Connection& connection) {
  std::array<std::byte,
             protocol::kControlHeaderBytes + limits::kHelloBytesMax + sizeof(protocol::Tag)>
      seen;
  const ssize_t got = recv(connection.fd(), seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got <= 0) return false;
  const ByteView bytes = ByteView(seen).first(static_cast<std::size_t>(got));
  if (bytes.front() == tls::kHandshakeByte) {
    if (bytes.size() < tls::kHelloHeadBytes) return false;
    const Result<std::size_t> whole = tls::hello_record_bytes(bytes);
    if (!whole.ok() || *whole > bytes.size()) return false;
    const Result<std::optional<tls::KeyOffer>> offer = tls::read_key_offer(bytes.first(*whole));
    if (!offer.ok() || !*offer) return false;
    const auto identity = protocol::decode_identity((*offer)->identity);
    if (!identity) return false;
    const Result<protocol::Key> key = book.tls_key(*identity);
    return key.ok() && tls::binder_proves(**offer, *key);
  }
  const std::optional<protocol::ControlFrame> frame = whole_frame(bytes);
  if (!frame) return false;
  const Result<protocol::ControlMessage> message = protocol::decode(frame->payload);
  const auto* attach = message.ok() ? std::get_if<protocol::Attach>(&*message) : nullptr;
  if (attach == nullptr) return false;
  const Result<protocol::Key> key = book.attach_key(*attach);
  return key.ok() && protocol::proved(*frame, *key, protocol::Sender::kClient, attach->index);
}

}  // namespace gpurun::server
