// AttachConnection: one connection of an attach, up to its first message.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/result.h"
#include "protocol/auth/proof.h"
#include "protocol/control/control.h"
#include "transport/shm/memory.h"
#include "transport/transport.h"

namespace gpurun::client {

struct AttachConnection {
  std::string server;
  // "unix:NAME": a local socket, over which memory is shared. Empty: `server` by TCP.
  std::string local;
  // The socket of gpurun that opens the connection (broker.h). Empty: this process opens it.
  std::string broker;
  protocol::Attach words;
  protocol::Key key;                     // Tags the words and the answer.
  std::optional<protocol::Key> tls_key;  // The session's. Empty: nothing is encrypted.
  int fd_min = 0;
  // A memory file to offer over a local socket, in place of memory for bytes. -1: none.
  int offered_file = -1;
  Deadline connected;
  Deadline deadline;
  std::chrono::milliseconds patience;  // The span of `deadline`, for messages.
  // The worker knows changes of the carrier (transport/carrier/connection.h).
  bool may_change = false;
};

// An opened connection. The server's answer or refusal comes over `connection`. Later bytes pass
// through `memory`, if there is any.
struct OpenedConnection {
  std::unique_ptr<transport::Connection> connection;
  transport::Connection* below = nullptr;  // Of TCP, when `connection` encrypts it.
  transport::shm::SharedMemory memory = {};
  std::string why_no_memory = {};  // Of a local connection.

  // Call it after the answer, or where no answer comes. `may_change`: as in AttachConnection.
  Result<std::unique_ptr<transport::Connection>> carry_calls(bool may_change) &&;
};

// Connects, shakes hands if the session is encrypted, and sends the words. Then offers memory if it
// is to be shared. Errors as attach().
Result<OpenedConnection> open_attach_connection(const AttachConnection& one,
                                                transport::DescriptorKeeper* keeper = nullptr);

// Closes a connection that was opened in this way and is not needed. It notifies the keeper, which
// could otherwise take the next file with that number for the connection.
void let_go(transport::DescriptorKeeper& keeper,
            std::unique_ptr<transport::Connection>& connection) noexcept;

Status not_answered(const std::string& server, std::chrono::milliseconds patience);

}  // namespace gpurun::client
