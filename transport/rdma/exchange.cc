// Exchange: messages of a fixed form, so that no length comes from the peer.
#include "transport/rdma/exchange.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/printable.h"
#include "transport/carrier/connection.h"
#include "transport/carrier/no_carrier.h"

namespace gpurun::transport::rdma {
namespace {

constexpr std::size_t kTextBytes = 192;

struct ExchangeMessage {
  Offer offer;  // Without ring_bytes: there is no offer.
  // Why there is no offer. With an offer, its port with the reason for that. Older ends leave it
  // empty.
  std::array<char, kTextBytes> text{};
};
static_assert(std::is_trivially_copyable_v<ExchangeMessage> && sizeof(ExchangeMessage) == 256);

// "mlx5_0:1 (PIX to the GPU)"
std::string described(const FabricEnd& end) {
  const std::string why = end.why_port();
  return end.port() + (why.empty() ? "" : " (" + why + ")");
}

Status send_message(Connection& socket, const FabricEnd* end, const std::string& why_none,
                    Deadline deadline) {
  ExchangeMessage message;
  if (end != nullptr) message.offer = end->offer();
  const std::string text = end != nullptr ? described(*end) : why_none;
  std::copy_n(text.begin(), std::min(text.size(), kTextBytes), message.text.begin());
  const ByteView bytes = bytes_of(message);
  return socket.send({&bytes, 1}, deadline);
}

Result<ExchangeMessage> receive_message(Connection& socket, Deadline deadline) {
  ExchangeMessage message;
  const auto got =
      socket.receive(mutable_bytes(&message, sizeof message), sizeof message, deadline);
  if (!got.ok()) return got.status();
  if (message.offer.magic != Offer().magic) {
    return Status(Code::kProtocol, "the other end's message about RDMA is not valid");
  }
  return message;
}

std::string text_of(const ExchangeMessage& message) {
  const auto end = std::find(message.text.begin(), message.text.end(), '\0');
  return printable(std::string(message.text.begin(), end));
}

std::string ports_of(const FabricEnd& end, const ExchangeMessage& message) {
  const std::string theirs = text_of(message);
  return described(end) + (theirs.empty() ? "" : " to " + theirs);
}

Result<std::unique_ptr<FabricEnd>> make_end(const Connection& socket, const Side& side,
                                            const Offer* theirs) {
  if (side.fabric == nullptr) return Status(Code::kUnavailable, side.why_none);
  const Result<Gid> local = address_of(socket.fd());
  if (!local.ok()) return local.status();
  return side.fabric->make_end(*local, theirs, side.place);
}

// Otherwise a peer could aim this end's device at the queue pairs of another machine. An address of
// InfiniBand cannot be compared with one of IP.
Status check_peer(const Connection& socket, const Offer& theirs) {
  if (theirs.link == static_cast<std::uint8_t>(Link::kInfiniBand)) return {};
  const Result<Gid> peer = peer_address_of(socket.fd());
  if (!peer.ok()) return peer.status();
  if (theirs.gid == *peer) return {};
  return Status(Code::kUnavailable,
                "the GID that the other end offers is not its address of the "
                "connection");
}

Result<std::unique_ptr<carrier::Carrier>> connect_end(const Connection& socket, FabricEnd& end,
                                                      const Offer& theirs) {
  GPURUN_RETURN_IF_ERROR(check_peer(socket, theirs));
  return end.connect(theirs);
}

Result<std::unique_ptr<carrier::CarriedConnection>> carried(
    std::unique_ptr<Connection>& connection, Connection* below,
    std::unique_ptr<carrier::Carrier> carrier) {
  auto* const socket =
      dynamic_cast<sockets::SocketConnection*>(below == nullptr ? connection.get() : below);
  if (socket == nullptr) {
    return Status(Code::kInternal, connection->description() + ": not a socket");
  }
  carrier::CarrierOptions options;
  options.may_change = true;
  options.begins_by_carrier = false;
  return carrier::carry(carrier::layered_socket(std::move(connection), *socket), std::move(carrier),
                        Capabilities{}, options);
}

}  // namespace

Result<Asked> ask(Connection& socket, const Side& side, Deadline deadline) {
  Asked asked;
  Result<std::unique_ptr<FabricEnd>> end = make_end(socket, side, nullptr);
  if (end.ok()) {
    asked.end = *std::move(end);
  } else {
    asked.why_none = end.status().message();
  }
  GPURUN_RETURN_IF_ERROR(send_message(socket, asked.end.get(), asked.why_none, deadline));
  return asked;
}

Result<Agreement> enter(std::unique_ptr<Connection>& connection, Connection* below, Asked asked,
                        Deadline deadline) {
  const Result<ExchangeMessage> message = receive_message(*connection, deadline);
  if (!message.ok()) return message.status();
  if (asked.end == nullptr) return Agreement{{}, asked.why_none};
  if (message->offer.ring_bytes == 0) return Agreement{{}, "the server: " + text_of(*message)};
  Result<std::unique_ptr<carrier::Carrier>> carrier =
      connect_end(*connection, *asked.end, message->offer);
  // The other end carries the connection already, so this end does so too.
  const bool enters = carrier.ok();
  Agreement agreement;
  if (enters) {
    agreement.ports = ports_of(*asked.end, *message);
  } else {
    agreement.why_none = carrier.status().message();
  }
  auto made =
      carried(connection, below,
              enters ? *std::move(carrier)
                     : std::unique_ptr<carrier::Carrier>(std::make_unique<carrier::NoCarrier>()));
  if (!made.ok()) return made.status();
  if (enters) GPURUN_RETURN_IF_ERROR((*made)->enter());
  connection = *std::move(made);
  return agreement;
}

Result<Agreement> answer(std::unique_ptr<Connection>& connection, Connection* below,
                         const Side& side, Deadline deadline) {
  const Result<ExchangeMessage> message = receive_message(*connection, deadline);
  if (!message.ok()) return message.status();
  const auto refuse = [&](const std::string& why,
                          const std::string& answer_text) -> Result<Agreement> {
    GPURUN_RETURN_IF_ERROR(send_message(*connection, nullptr, answer_text, deadline));
    return Agreement{{}, why};
  };
  if (message->offer.ring_bytes == 0) return refuse("the client: " + text_of(*message), {});
  Result<std::unique_ptr<FabricEnd>> end = make_end(*connection, side, &message->offer);
  if (!end.ok()) return refuse(end.status().message(), end.status().message());
  Result<std::unique_ptr<carrier::Carrier>> carrier =
      connect_end(*connection, **end, message->offer);
  if (!carrier.ok()) return refuse(carrier.status().message(), carrier.status().message());
  GPURUN_RETURN_IF_ERROR(send_message(*connection, end->get(), {}, deadline));
  auto made = carried(connection, below, *std::move(carrier));
  if (!made.ok()) return made.status();
  connection = *std::move(made);
  return Agreement{ports_of(**end, *message), {}};
}

}  // namespace gpurun::transport::rdma
