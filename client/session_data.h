// SessionData: what gpurun hands to the processes that it starts, so that each can attach: where
// the server is, and the ticket. It lies in a file that GPURUN_SESSION names (a memory file of
// gpurun's, or one of mode 0600), never in the environment itself, which other users may read.
//
// The format is lines of "name value", so that a person can read it; see session_data.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "protocol/proof.h"

namespace gpurun::client {

// Names the file.
inline constexpr const char* kSessionVariable = "GPURUN_SESSION";
// A longer file is no session data.
inline constexpr std::size_t kSessionDataBytesMax = 64 * 1024;

struct SessionData {
  std::vector<std::string> servers;  // "host:port", one for now.
  protocol::Id lease{};
  protocol::Id ticket{};
  protocol::Key ticket_key{};   // Secret, for as long as the lease lives.
  protocol::Nonce challenge{};  // The server's part of every attach key.
  unsigned device_count = 0;    // What the lease granted.
  std::string deaths;           // Path of gpurun's DeathBoard; empty: none.
  bool encrypted = false;       // Connections speak TLS, as the control link did.
  // Where the server may be reached from within its machine (protocol/local_address.h); empty:
  // nowhere.
  std::string local = {};
};

std::string serialise_session_data(const SessionData& data);
// kInvalidArgument says what is wrong with it.
Result<SessionData> parse_session_data(std::string_view text);

// Reads the file at `path`. kUnavailable: there is none. kRefused: others may read it (mode), or it
// belongs to another user.
Result<SessionData> read_session_data(const std::string& path);
// From the file that GPURUN_SESSION names, or named when this program was started.
//   kUnavailable  not started by gpurun.
//   kPeerGone     it was, and cannot read that file; the message says why that may be.
Result<SessionData> session_data_from_environment();

}  // namespace gpurun::client
