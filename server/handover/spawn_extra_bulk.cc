// Joining: one SOCK_SEQPACKET message with one descriptor attached.
#include "server/handover/spawn_extra_bulk.h"

#include <cstring>
#include <utility>

#include "base/descriptor_message.h"
#include "protocol/limits.h"

namespace gpurun::server {
namespace {

struct JoiningMessage {
  std::uint32_t magic;
  std::uint32_t index;
  protocol::Key key;
};
constexpr std::uint32_t kJoiningMagic = 0x6a6f696e;

bool in_bounds(std::uint32_t index) { return index >= 2 && index < limits::kConnectionsMax; }

}  // namespace

Status send_joining(int socket, const Joining& joining, int connection) {
  if (!in_bounds(joining.index)) {
    return Status(Code::kInternal, "a connection that cannot join its session");
  }
  const JoiningMessage message{kJoiningMagic, joining.index, joining.key};
  return send_message(socket, byte_view(&message, sizeof message), {&connection, 1}, Wait::kNever);
}

Result<Joining> receive_joining(int socket, UniqueFd* connection) {
  Result<DescriptorMessage> received = receive_message(socket, sizeof(JoiningMessage), Wait::kYes);
  if (!received.ok()) return received.status();
  JoiningMessage message{};
  const bool whole = received->bytes.size() == sizeof message && received->attached.size() == 1;
  if (whole) std::memcpy(&message, received->bytes.data(), sizeof message);
  if (!whole || message.magic != kJoiningMagic || !in_bounds(message.index)) {
    return Status(Code::kProtocol,
                  "gpurund passed a malformed message in place of a bulk connection");
  }
  *connection = std::move(received->attached[0]);
  return Joining{static_cast<std::uint16_t>(message.index), message.key};
}

}  // namespace gpurun::server
