// ExtraBulkAttach: a worker answers on the connection after gpurund has passed it on. Nothing else
// is sent before that answer.
#include "client/attach/extra_bulk_attach.h"

#include <utility>

#include "protocol/limits.h"

namespace gpurun::client {
namespace {

// Longer than the server's own deadlines. If this side gave up while the worker was accepting the
// connection, the worker would see a connection of the session end.
constexpr std::chrono::seconds kPatience{60};

}  // namespace

ExtraBulkAttach::ExtraBulkAttach(const AttachConnection& like) : next_(like) {
  next_.words.index = like.words.count;
  next_.patience = kPatience;
}

Result<ExtraBulkConnections::Joined> ExtraBulkAttach::open(transport::DescriptorKeeper& keeper) {
  if (next_.words.index >= limits::kConnectionsMax) {
    return Status(Code::kResourceExhausted, "the session has had all its connections");
  }
  next_.words.count = static_cast<std::uint16_t>(next_.words.index + 1);
  next_.connected = Deadline::in(std::chrono::seconds(limits::kHandshakeDeadlineS));
  next_.deadline = Deadline::in(kPatience);
  auto opened = open_attach_connection(next_, &keeper);
  const Result<unsigned> cores =
      opened.ok() ? hear_answer(*opened->connection) : Result<unsigned>(opened.status());
  ++next_.words.index;
  if (!cores.ok()) {
    if (opened.ok()) let_go(keeper, opened->connection);
    return cores.status();
  }
  auto connection = (*std::move(opened)).carry_calls();
  if (!connection.ok()) return connection.status();
  return Joined{*std::move(connection), *cores};
}

Result<unsigned> ExtraBulkAttach::hear_answer(transport::Connection& connection) const {
  const auto frame = protocol::receive_control(connection, limits::kHelloBytesMax, next_.deadline);
  if (!frame.ok()) return frame.status();
  const auto message = protocol::decode(frame->payload);
  if (!message.ok()) return message.status();
  if (const auto* refused = std::get_if<protocol::Refused>(&*message)) {
    return Status(Code::kRefused, "server " + next_.server + ": " + refused->reason);
  }
  const auto* joined = std::get_if<protocol::Joined>(&*message);
  if (joined == nullptr ||
      !protocol::proved(*frame, next_.key, protocol::Sender::kServer, next_.words.index)) {
    return Status(Code::kProtocol, "server " + next_.server + " gave an answer that does not fit");
  }
  return unsigned{joined->cores};
}

}  // namespace gpurun::client
