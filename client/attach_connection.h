// One connection of an attach, up to its first words.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/deadline.h"
#include "base/result.h"
#include "protocol/control.h"
#include "protocol/proof.h"
#include "transport/shm/memory.h"
#include "transport/transport.h"

namespace gpurun::client {

struct AttachConnection {
  std::string server;
  std::string local;  // "unix:NAME": there, and memory is shared; empty: at `server`, by TCP.
  protocol::Attach words;
  protocol::Key key;                     // Tags them, and the answer.
  std::optional<protocol::Key> tls_key;  // The session's; empty: nothing is encrypted.
  int fd_min = 0;
  Deadline connected;
  Deadline deadline;
  std::chrono::milliseconds patience;  // What the latter was, for messages.
};

// One that has been opened. The server's answer, or its refusal, comes as `connection` is; what
// comes behind it passes through `memory`, if there is any.
struct OpenedConnection {
  std::unique_ptr<transport::Connection> connection;
  transport::shm::SharedMemory memory = {};
  std::string why_no_memory = {};  // Of a local one.

  // After the answer, or where none comes.
  Result<std::unique_ptr<transport::Connection>> carry_calls() &&;
};

// Connects, shakes hands where the session is encrypted, says the words, and offers memory where it
// is to be shared. Errors as of attach().
Result<OpenedConnection> open_attach_connection(const AttachConnection& one,
                                                transport::DescriptorKeeper* keeper = nullptr);

// Closes a connection that was opened so, and that nobody gets: under its keeper's eyes, who else
// might take what has its number next for it.
void let_go(transport::DescriptorKeeper& keeper,
            std::unique_ptr<transport::Connection>& connection) noexcept;

Status not_answered(const std::string& server, std::chrono::milliseconds patience);

}  // namespace gpurun::client
