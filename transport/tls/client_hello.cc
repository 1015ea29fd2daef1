// ClientHello parser: RFC 8446, sections 4.1.2 and 4.2.11, as far as the pre-shared key.
#include "transport/tls/client_hello.h"

#include <cstdint>

namespace gpurun::transport::tls {
namespace {

constexpr std::uint8_t kClientHello = 1;
constexpr std::uint16_t kPreSharedKey = 41;
constexpr std::size_t kRandomBytes = 32;

// Takes fields from the front. Once something is missing, every later field is missing and empty.
class Reader {
 public:
  explicit Reader(ByteView bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool empty() const { return rest_.empty(); }
  std::size_t left() const { return rest_.size(); }

  ByteView take(std::size_t bytes) {
    if (bytes > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const ByteView front = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return front;
  }
  std::size_t number(std::size_t bytes) {
    std::size_t value = 0;
    for (const std::byte byte : take(bytes)) value = value << 8 | std::to_integer<unsigned>(byte);
    return value;
  }
  // A vector, with its length in `length_bytes` before it.
  ByteView vector(std::size_t length_bytes) { return take(number(length_bytes)); }

 private:
  ByteView rest_;
  bool ok_ = true;
};

Status malformed() { return Status(Code::kProtocol, "a malformed TLS ClientHello"); }

}  // namespace

Result<std::size_t> hello_record_bytes(ByteView bytes) {
  Reader reader(bytes);
  const bool is_handshake = reader.number(1) == std::to_integer<std::size_t>(kHandshakeByte);
  const bool is_tls = reader.number(1) == 3;
  reader.take(1);
  const std::size_t inside = reader.number(2);
  if (!reader.ok() || !is_handshake || !is_tls || inside == 0) return malformed();
  return kHelloHeadBytes + inside;
}

Result<std::optional<KeyOffer>> read_key_offer(ByteView record) {
  const Result<std::size_t> bytes = hello_record_bytes(record);
  if (!bytes.ok()) return bytes.status();
  if (*bytes != record.size()) return malformed();
  const ByteView message = record.subspan(kHelloHeadBytes);
  Reader whole(message);
  if (whole.number(1) != kClientHello) return malformed();
  Reader hello(whole.vector(3));
  // One record with one message: our clients send no more before the answer.
  if (!whole.ok() || !whole.empty()) return malformed();
  hello.take(2 + kRandomBytes);
  hello.vector(1);  // Session.
  hello.vector(2);  // Suites.
  hello.vector(1);  // Compressions.
  Reader extensions(hello.vector(2));
  if (!hello.ok() || !hello.empty()) return malformed();
  while (!extensions.empty()) {
    const std::size_t kind = extensions.number(2);
    const ByteView body = extensions.vector(2);
    if (!extensions.ok()) return malformed();
    if (kind != kPreSharedKey) continue;
    // It must be the last extension, so that the binders end the message.
    if (!extensions.empty()) return malformed();
    Reader offer(body);
    Reader identities(offer.vector(2));
    const std::size_t binders_bytes = 2 + (offer.left() > 2 ? offer.left() - 2 : 0);
    Reader binders(offer.vector(2));
    if (!offer.ok() || !offer.empty()) return malformed();
    KeyOffer found;
    found.identity = identities.vector(2);
    identities.take(4);  // The ticket's age: 0 for an external key.
    found.binder = binders.vector(1);
    if (!identities.ok() || !binders.ok()) return malformed();
    if (!identities.empty() || !binders.empty() || found.binder.size() != sizeof(Secret)) {
      return std::optional<KeyOffer>();
    }
    found.truncated = message.first(message.size() - binders_bytes);
    return std::optional<KeyOffer>(found);
  }
  return std::optional<KeyOffer>();
}

bool binder_proves(const KeyOffer& offer, const Secret& pre_shared_key) {
  const Secret expected = external_binder(pre_shared_key, offer.truncated);
  return equal_in_constant_time(offer.binder, bytes_of(expected));
}

}  // namespace gpurun::transport::tls
