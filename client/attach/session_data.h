// SessionData: what gpurun passes to the processes that it starts, so that each can attach. It
// holds the server's address and the ticket. It is in a file that GPURUN_SESSION names: a memory
// file of gpurun's, or one of mode 0600. It is never in the environment itself, which other users
// may read.
//
// The format is lines of "name value", which a person can read. See session_data.cc. A file of a
// session folder names its neighbours without a folder, so that the folder may be mounted anywhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "protocol/auth/proof.h"

namespace gpurun::client {

// The variable that names the file.
inline constexpr const char* kSessionVariable = "GPURUN_SESSION";
// The first line, without its end.
inline constexpr std::string_view kSessionFirstLine = "gpurun session 1";
// A longer file is rejected.
inline constexpr std::size_t kSessionDataBytesMax = 64 * 1024;

struct SessionData {
  std::vector<std::string> servers;  // "host:port". One for now.
  protocol::Id lease{};
  protocol::Id ticket{};
  protocol::Key ticket_key{};   // Secret while the lease lives.
  protocol::Nonce challenge{};  // The server's part of every attach key.
  unsigned device_count = 0;    // The number that the lease granted.
  std::string deaths;           // Path of gpurun's WorkerExitPage. Empty: there is no board.
  bool encrypted = false;       // Connections use TLS, as the control link did.
  // The server's address within its own machine (protocol/control/local_address.h). Empty: it has
  // none.
  std::string local = {};
  // Path of the socket at which gpurun opens connections (broker.h). Empty: processes connect.
  std::string broker = {};
};

std::string serialise_session_data(const SessionData& data);
// kInvalidArgument: the message gives the reason.
Result<SessionData> parse_session_data(std::string_view text);

// Reads the file at `path`. kUnavailable: there is no file. kRefused: other users may read it
// (mode), or it belongs to another user.
Result<SessionData> read_session_data(const std::string& path);
// Reads the file that GPURUN_SESSION names, or named when this program started.
//   kUnavailable  gpurun did not start this program.
//   kPeerGone     gpurun did, and the file cannot be read. The message gives a likely reason.
Result<SessionData> session_data_from_environment();
// False if gpurun's process is known to be in another network namespace: GPURUN_SESSION names one
// of its descriptors.
bool in_network_of_gpurun();

}  // namespace gpurun::client
