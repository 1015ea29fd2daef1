// LateAttach: a worker answers on the connection after gpurund has passed it on. Nothing else is
// sent before that answer.
#include "client/attach/late_attach.h"

#include <chrono>
#include <utility>

#include "protocol/limits.h"

namespace gpurun::client {
namespace {

// Longer than the server's own deadlines. If this side gave up while the worker was accepting the
// connection, the worker would see a connection of the session end.
constexpr std::chrono::seconds kPatience{60};

// Returns the worker's number of cores.
Result<unsigned> hear_answer(const AttachConnection& one, transport::Connection& connection) {
  const auto frame = protocol::receive_control(connection, limits::kHelloBytesMax, one.deadline);
  if (!frame.ok()) return frame.status();
  const auto message = protocol::decode(frame->payload);
  if (!message.ok()) return message.status();
  if (const auto* refused = std::get_if<protocol::Refused>(&*message)) {
    return Status(Code::kRefused, "server " + one.server + ": " + refused->reason);
  }
  const auto* joined = std::get_if<protocol::Joined>(&*message);
  if (joined == nullptr ||
      !protocol::proved(*frame, one.key, protocol::Sender::kServer, one.words.index)) {
    return Status(Code::kProtocol, "server " + one.server + " gave an answer that does not fit");
  }
  return unsigned{joined->cores};
}

}  // namespace

LateAttach::LateAttach(const AttachConnection& like) : like_(like), next_index_(like.words.count) {}

Result<LateAttach::Answered> LateAttach::open(transport::DescriptorKeeper& keeper, int file) {
  AttachConnection one = like_;
  std::uint16_t index = next_index_.load();
  do {
    if (index >= limits::kConnectionsMax) {
      return Status(Code::kResourceExhausted, "the session has had all its connections");
    }
  } while (!next_index_.compare_exchange_weak(index, static_cast<std::uint16_t>(index + 1)));
  one.words.index = index;
  one.words.count = static_cast<std::uint16_t>(index + 1);
  one.offered_file = file;
  one.patience = kPatience;
  one.connected = Deadline::in(std::chrono::seconds(limits::kHandshakeDeadlineS));
  one.deadline = Deadline::in(kPatience);
  Result<OpenedConnection> opened = open_attach_connection(one, &keeper);
  if (!opened.ok()) return opened.status();
  const Result<unsigned> cores = hear_answer(one, *opened->connection);
  if (cores.ok()) return Answered{*std::move(opened), *cores};
  let_go(keeper, opened->connection);
  return cores.status();
}

}  // namespace gpurun::client
